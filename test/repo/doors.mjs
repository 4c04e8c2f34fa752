// `node test/repo/doors.mjs [send|write|req|capture]`: the files that one request enters, by V8's precise coverage: a file counts where one of its named functions
// was called. Two devices of this process, joined by memory links; the connection is warm, and nothing is lost. Each step is a call of the program.
// Prints JSON: for each of several requests, on several connections, the files of each step. A thread that was stalled enters more (timers): the fewest are
// those of the request.
// With `req`: the files from `connect` to `getRequest`, on both sides, of the first connection of two devices, which makes the caller's queue pair 1, and of
// another.
// With `capture`: the files of the analysis of a capture in which packets were lost, and of one more SEND and one more ACK of a capture without losses.
import inspector from 'node:inspector';
import { join } from 'node:path';
import { FlowAnalyzer, PacketReader } from '@node-roce/capture';
import { analyzeCapture } from '@node-roce/capture/node';
import { MemoryNetwork } from '@node-roce/link';
import { openCapture } from '@node-roce/pcap/node';
import { CmId } from '@node-roce/rdmacm';
import { openDevice } from '@node-roce/verbs-api';

const WARM = 20;
const REQUESTS = 8;
/** Connections, or pairs of devices: one whose probe was sent for a stalled thread has lost something, and enters loss recovery from then on. */
const ROUNDS = 3;

const session = new inspector.Session();
session.connect();

/** The answer of the inspector, which comes before `post` returns. */
function ask(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    if (error) throw new Error(error.message);
    answer = result;
  });
  return answer;
}

/** Files entered since the last call: package and path, without the ending. */
function entered() {
  const files = [];
  for (const { url, functions } of ask('Profiler.takePreciseCoverage').result) {
    const [, name, path] = /\/packages\/([^/]+)\/dist\/(.+)\.js$/.exec(url) ?? [];
    const isEntered = functions.some(
      ({ functionName, ranges }) => functionName !== '' && ranges[0].count > 0,
    );
    if (name !== undefined && isEntered) files.push(`${name}/${path}`);
  }
  return files.sort();
}

async function open(network, address) {
  const device = await openDevice({ link: network.link(address, 1024) });
  const pd = await device.allocPd();
  const cq = await device.createCq(64);
  const access = { remoteWrite: true };
  const mr = await pd.registerMr(new Uint8Array(4096), { access });
  const qp = await pd.createQp({ sendCq: cq });
  return { device, cq, mr, qp };
}

/** Two connections from one device to the other: the files of each, until the listener has it. */
async function connections() {
  const network = new MemoryNetwork();
  const [caller, called] = await Promise.all([open(network, '10.0.0.1'), open(network, '10.0.0.2')]);
  const listener = new CmId({ device: called.device });
  await listener.listen({ port: 7471 });
  const equip = async (id, { device }) =>
    id.createQp(await device.allocPd(), { sendCq: await device.createCq(16) });
  const files = [];
  for (let i = 0; i < 2; i++) {
    const client = new CmId({ device: caller.device });
    await client.resolveAddr({ host: '10.0.0.2', port: 7471, source: '10.0.0.1' });
    await client.resolveRoute();
    await equip(client, caller);
    entered();
    const connecting = client.connect();
    const server = await listener.getRequest();
    files.push(entered());
    await equip(server, called);
    await Promise.all([server.accept(), connecting]);
  }
  await Promise.all([caller.device.close(), called.device.close()]);
  const [first, another] = files;
  return { first, another };
}

const fixture = (name) => join(import.meta.dirname, `../fixtures/captures/${name}.pcap`);

/** A whole analysis, and the fewest files that one more packet of each kind enters. */
async function captured() {
  entered();
  await analyzeCapture(fixture('loss5_both_rc_pingpong'));
  const analysis = entered();
  const fewest = {};
  let name;
  const analyzer = new FlowAnalyzer();
  const onPacket = (packet) => {
    name = packet.info.name;
    analyzer.add(packet);
  };
  const reader = new PacketReader({ onPacket });
  for await (const records of openCapture(fixture('pf_send_bw_rc_1'))) {
    for (const record of records) {
      name = undefined;
      entered();
      reader.frame(record);
      const files = entered();
      if (name !== undefined && !(fewest[name]?.length <= files.length)) fewest[name] = files;
    }
  }
  return { analysis, packets: fewest };
}

/** Several requests on a connection of their own. */
async function requests(what) {
  const network = new MemoryNetwork();
  const a = await open(network, '10.0.0.1');
  const b = await open(network, '10.0.0.2');
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
  const sgList = [{ mr: a.mr, offset: 0, length: 64 }];
  const wr =
    what === 'send'
      ? { opcode: 'SEND', signaled: true, sgList }
      : { opcode: 'RDMA_WRITE', signaled: true, sgList, remote: b.mr.remote() };
  const receive = () => what === 'send' && b.qp.postRecv({ sgList: [{ mr: b.mr, offset: 0, length: 64 }] });
  const settle = () => {
    for (let i = 0; i < 5; i++) {
      a.cq.poll();
      b.cq.poll();
    }
  };
  for (let i = 0; i < WARM; i++) {
    receive();
    a.qp.postSend(wr);
    settle();
  }
  const files = [];
  for (let i = 0; i < REQUESTS; i++) {
    receive();
    entered();
    const step = (call) => {
      call();
      return entered();
    };
    files.push({
      post: step(() => a.qp.postSend(wr)),
      sent: step(() => a.cq.poll()),
      taken: step(() => b.cq.poll()),
      acknowledged: step(() => b.cq.poll()),
      completed: step(() => a.cq.poll()),
    });
    settle();
  }
  await a.device.close();
  await b.device.close();
  return files;
}

const what = process.argv[2] ?? 'send';
ask('Profiler.enable');
ask('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
const measure = { req: connections, capture: captured }[what] ?? (() => requests(what));
const all = [];
for (let i = 0; i < ROUNDS; i++) all.push(await measure());
console.log(JSON.stringify(all.flat()));
process.exit();
