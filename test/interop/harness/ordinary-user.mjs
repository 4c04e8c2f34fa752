// A program of an ordinary user: takes rxe's WRITEs, then READs the same back. Its commands and answers are lines of JSON on
// stdin and stdout.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { openDevice } from '@node-roce/verbs-api';

const MIB = 1 << 20;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
const say = (value) =>
  process.stdout.write(`${JSON.stringify(value, (_k, v) => (typeof v === 'bigint' ? `${v}` : v))}\n`);

const { host, size } = await next();
// The size of a socket whose program asks for none; the kernel doubles the size that is asked for.
const receiveBuffer = Number(readFileSync('/proc/sys/net/core/rmem_default', 'utf8')) / 2;
const device = await openDevice({ address: host, receiveBuffer });
const pd = await device.allocPd();
const cq = await device.createCq(256);
const qp = await pd.createQp({ sendCq: cq });
const bytes = new Uint8Array(size);
const mr = await pd.registerMr(bytes, { access: { remoteRead: true, remoteWrite: true } });
say({ qpNum: qp.qpNum, psn: qp.initialPsn, ...mr.remote() });

const remote = await next();
await qp.connect({ qpNum: remote.qpNum, psn: remote.psn, gid: remote.gid }, { pathMtu: 4096 });
say({ connected: true });

async function report() {
  const { link, ...counters } = await device.counters();
  say({
    uid: process.getuid(),
    capabilities: /CapEff:\s*(\w+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1],
    receiveBuffer: device.query().receiveBuffer,
    sha256: createHash('sha256').update(bytes).digest('hex'),
    counters,
    kernelDrops: link.kernelDrops,
  });
}

for (;;) {
  const order = await next();
  if (order.report) await report();
  if (order.read) {
    bytes.fill(0);
    const addr = BigInt(remote.addr);
    const count = size / MIB;
    for (let posted = 0, done = 0; done < count; ) {
      while (posted < count && posted - done < 16) {
        qp.postSend({
          opcode: 'RDMA_READ',
          signaled: true,
          sgList: [{ mr, offset: posted * MIB, length: MIB }],
          remote: { addr: addr + BigInt(posted * MIB), rkey: remote.rkey },
        });
        posted++;
      }
      const wc = await cq.next();
      if (!wc.ok) throw new Error(wc.status);
      done++;
    }
    await report();
  }
  if (order.end) break;
}
await device.close();
process.exit(0);
