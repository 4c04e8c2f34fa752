/** Peers over the connection manager, on a device of the caller: a call that fails leaves nothing on it. */
import { MemoryNetwork } from '@node-roce/link';
import { callPerf, type PerfOptions, servePerf } from '@node-roce/perf';
import { CmId } from '@node-roce/rdmacm';
import { type Device, openDevice, ProtectionDomain, QueuePair } from '@node-roce/verbs-api';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { EXCHANGE, expectError, guard } from './guard.ts';
import { settled, TIMEOUT } from './sides.ts';

const { heldOn } = guard();

const [OURS, THEIRS] = ['10.0.0.1', '10.0.0.2'];
const WRITE: PerfOptions = { verb: 'write', measure: 'bw', size: 64, iters: 20 };
const PORT = 18_515;
const RESOURCES = { responderResources: 0, initiatorDepth: 0, rnrRetryCount: 7, retryCount: 7 };

let network: MemoryNetwork;
let [ours, theirs]: Device[] = [];
beforeEach(async () => {
  network = new MemoryNetwork();
  ours = await openDevice({ link: network.link(OURS) });
  theirs = await openDevice({ link: network.link(THEIRS) });
});
afterEach(async () => {
  await ours.close();
  await theirs.close();
});

const call = (options = WRITE, more: object = {}) =>
  settled(
    callPerf(options, { device: ours, host: THEIRS, rdmaCm: true, timeout: TIMEOUT, ...more }),
    performance.now(),
  );

/** A server of ours, which listens when this resolves. */
async function serve(options = WRITE, more: object = {}) {
  let onListening: () => void = () => {};
  const listening = new Promise<void>((resolve) => {
    onListening = resolve;
  });
  const side = { device: ours, rdmaCm: true, timeout: TIMEOUT, onListening, ...more };
  const serving = settled(servePerf(options, side), performance.now());
  await Promise.race([listening, serving]);
  return serving;
}

/** A queue pair of the peer's, which posts no receives. */
async function equip(id: CmId) {
  const pd = await theirs.allocPd();
  await id.createQp(pd, { sendCq: await theirs.createCq(2000), cap: { maxSendWr: 1000 } });
  return pd;
}

async function dial(): Promise<{ id: CmId; pd: ProtectionDomain }> {
  const id = new CmId({ device: theirs });
  await id.resolveAddr({ host: OURS, port: PORT });
  await id.resolveRoute();
  const pd = await equip(id);
  await id.connect(RESOURCES);
  return { id, pd };
}

describe('a client', () => {
  test('finds nobody', { tags: ['slow'] }, async () => {
    // It asks ten times.
    expectError(await call(), /^ERR_ROCE_CM_REFUSED$/);
    expect(heldOn(ours)).toBe(0);
  });

  test('gives up between two tries', async () => {
    const outcome = await call(WRITE, { signal: AbortSignal.timeout(150) });
    expect(outcome.error).toMatchObject({ name: 'TimeoutError' });
    expect(heldOn(ours)).toBe(0);
  });

  test.each(['send', 'write'] as const)('%s: its server posts no receives', async (verb) => {
    const listener = new CmId({ device: theirs });
    await listener.listen({ address: THEIRS, port: PORT });
    const accepted = listener.getRequest().then(async (id) => {
      await equip(id);
      await id.accept(RESOURCES);
    });
    expectError(await call({ ...WRITE, verb }), /^ERR_ROCE_TIMEOUT$/);
    await accepted;
    expect(heldOn(ours)).toBe(0);
  });
});

describe('a server', () => {
  test('hears more messages than there are slots', async () => {
    const serving = serve();
    const { id, pd } = await dial();
    const message = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(16)));
    Buffer.from(message.bytes(0, 16).buffer).write('6.24');
    const sgList = [{ mr: message, offset: 0, length: 16 }];
    for (let i = 0; i < 1000; i++) id.qp!.postSend({ opcode: 'SEND', signaled: true, sgList });
    expectError(await serving, /^ERR_ROCE_TIMEOUT$/);
    const taken = id.qp!.sendCq.poll(1000).filter(({ ok }) => ok).length;
    expect(taken).toBeGreaterThan(0);
    expect(taken).toBeLessThan(10);
    expect(heldOn(ours)).toBe(0);
  });

  test('hears a message that is longer than any of the dialogue', async () => {
    const serving = serve(WRITE, { timeout: 120 });
    const { id, pd } = await dial();
    const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(513)));
    await id.qp!.send({ mr }).catch(() => {});
    const outcome = await serving;
    expectError(outcome, EXCHANGE);
    expect(outcome.error?.message).toContain('LOC_LEN_ERR');
    expect(heldOn(ours)).toBe(0);
  });

  test('accepts a client that does not hear of it', async () => {
    const serving = serve();
    const deliver = network.deliver.bind(network);
    const { gid } = ours.gids[0];
    network.deliver = (packet, to) => {
      if (Buffer.compare(to, gid) === 0) deliver(packet, to);
    };
    const dialing = dial().catch(() => {});
    expectError(await serving, /^ERR_ROCE_TIMEOUT$/);
    expect(heldOn(ours)).toBe(0);
    await theirs.close();
    await dialing;
  });

  test('is aborted before it listens', async () => {
    const signal = AbortSignal.abort(new Error('enough'));
    for (const rdmaCm of [false, true]) {
      const { error } = await serve(WRITE, { rdmaCm, host: '127.0.0.1', port: 0, signal });
      expect(error?.message).toBe('enough');
    }
    expect(heldOn(ours)).toBe(0);
  });

  const BOTH: PerfOptions = { verb: 'send', measure: 'bw', service: 'UD', size: 64, iters: 20 };

  test('gets a datagram that announces no queue pair', async () => {
    const options: PerfOptions = { ...BOTH, bidirectional: true };
    const serving = serve(options, { timeout: 120 });
    const { send } = QueuePair.prototype;
    const spy = vi.spyOn(QueuePair.prototype, 'send').mockImplementation(function (this: QueuePair, sg, how) {
      return send.call(this, sg, how?.ud ? { ud: how.ud } : how);
    });
    const calling = callPerf(options, { device: theirs, host: OURS, rdmaCm: true, timeout: 120 });
    calling.catch(() => {});
    const outcome = await serving;
    expectError(outcome, EXCHANGE);
    expect(outcome.error?.message).toContain('no immediate');
    await calling.catch(() => {});
    spy.mockRestore();
    expect([heldOn(ours), heldOn(theirs)]).toEqual([0, 0]);
  });

  test.each(['timeout', 'signal'])('waits for datagrams that nobody announces: %s', async (ends) => {
    const abort = new AbortController();
    const more = ends === 'signal' ? { signal: abort.signal, timeout: 20 } : {};
    const serving = serve({ ...BOTH, bidirectional: true }, more);
    const calling = settled(
      callPerf(BOTH, { device: theirs, host: OURS, rdmaCm: true, timeout: 2 }),
      performance.now(),
    );
    if (ends === 'signal') setTimeout(() => abort.abort(new Error('enough')), 300);
    const outcome = await serving;
    if (ends === 'signal') expect(outcome.error?.message).toBe('enough');
    else expectError(outcome, /^ERR_ROCE_TIMEOUT$/);
    expect(heldOn(ours)).toBe(0);
    expect((await calling).error).toBeDefined();
    expect(heldOn(theirs)).toBe(0);
  });
});

test.each([false, true])('memory can not be registered (rdmaCm %s): that is the error', async (rdmaCm) => {
  const serving = serve(WRITE, rdmaCm ? {} : { rdmaCm, host: '127.0.0.1', port: 18_515 });
  const peer = { device: theirs, host: rdmaCm ? OURS : '127.0.0.1', rdmaCm, timeout: TIMEOUT };
  const { registerMr } = ProtectionDomain.prototype;
  const spy = vi.spyOn(ProtectionDomain.prototype, 'registerMr').mockImplementation(function (
    this: ProtectionDomain,
    memory,
    options,
  ) {
    // The memory of the test, and not that of the dialogue.
    if (memory.byteLength > 2048) return Promise.reject(new Error('no room'));
    return registerMr.call(this, memory, options);
  });
  const { error } = await settled(callPerf(WRITE, peer), performance.now());
  spy.mockRestore();
  expect(error?.message).toBe('no room');
  await serving;
  expect([heldOn(ours), heldOn(theirs)]).toEqual([0, 0]);
});
