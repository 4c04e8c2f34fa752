/** Times of completions over real sockets: the kernel's, in the clock of `process.hrtime`. */
import { type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { expect, onTestFinished, test } from 'vitest';

/** The clocks' conversion is this exact, ns, also on a busy machine; nothing looks for packets for four times as long. */
const EXACT = 50e6;
const now = () => Number(process.hrtime.bigint());
// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);

async function openSide(n: number, engine: OpenOptions['engine']) {
  const device = await openDevice({ address: `127.0.0.${80 + n}`, port, engine });
  onTestFinished(() => device.close());
  const pd = await device.allocPd();
  const cq = await device.createCq(64, { timestamps: true });
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)));
  return { cq, mr, qp: await pd.createQp({ sendCq: cq }) };
}

async function connected(engine: OpenOptions['engine']) {
  const [from, to] = [await openSide(1, engine), await openSide(2, engine)];
  await from.qp.connect(to.qp.connectionData());
  await to.qp.connect(from.qp.connectionData());
  const send = () => {
    to.qp.postRecv({ sgList: [{ mr: to.mr }] });
    from.qp.postSend({ opcode: 'SEND', signaled: true, inline: true, sgList: [new Uint8Array(8)] });
  };
  return { from, to, send };
}

test('a packet has the time at which the kernel took it in, however late the engine looks', async () => {
  const { from, to, send } = await connected('inline');
  // The kernel begins to stamp some time after it was asked to.
  for (;;) {
    send();
    const before = now();
    from.cq.poll();
    const sent = now();
    while (now() < sent + 4 * EXACT); // Nothing runs that would take it in.
    const { ok, timestamp } = await to.cq.next();
    expect(ok).toBe(true);
    expect(timestamp).toBeLessThan(now() + EXACT);
    // On loopback, a packet arrives while it is sent. CLOCK_REALTIME is read for it, too, which may be adjusted meanwhile.
    if (timestamp < sent + EXACT) {
      expect(timestamp).toBeGreaterThan(before - EXACT);
      break;
    }
    await from.cq.next();
  }
});

test('the clock is the same with the engine in a worker', async () => {
  const { from, to, send } = await connected('worker');
  const before = now();
  send();
  for (const { cq } of [to, from]) {
    const { timestamp } = await cq.next();
    expect(timestamp).toBeGreaterThan(before - EXACT);
    expect(timestamp).toBeLessThan(now() + EXACT);
  }
});
