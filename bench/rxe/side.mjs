// One side of a test of perf in a guest: node side.mjs '{"role":"client","test":{…},"side":{…}}'. Prints the result as JSON.
import { callPerf, servePerf } from '@node-roce/perf';

const { role, test, side } = JSON.parse(process.argv[2]);
const onListening = () => console.log('listening');
const result = await (role === 'server' ? servePerf(test, { ...side, onListening }) : callPerf(test, side));
console.log(JSON.stringify({ runs: result.runs, retransmittedPackets: result.retransmittedPackets }));
