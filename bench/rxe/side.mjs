// One side of a test of perf in a guest: node side.mjs '{"role":"client","test":{…},"side":{…}}'. Prints the result as JSON. Or a device
// for programs of the guest: '{"role":"device","address":"10.78.0.1","path":"/run/roce/device.sock"}'.
import { DeviceServer } from '@node-roce/device';
import { callPerf, servePerf } from '@node-roce/perf';

const { role, test, side, ...device } = JSON.parse(process.argv[2]);
const onListening = () => console.log('listening');
if (role === 'device') {
  await DeviceServer.listen(device);
  onListening();
} else {
  const result = await (role === 'server' ? servePerf(test, { ...side, onListening }) : callPerf(test, side));
  console.log(JSON.stringify({ runs: result.runs, retransmittedPackets: result.retransmittedPackets }));
}
