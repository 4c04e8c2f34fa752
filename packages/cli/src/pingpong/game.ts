/** The exchange of messages: one at a time each way on each queue pair, as in the libibverbs examples. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { completionError, RoceError, type WcStatusName, WorkCompletion } from '@node-roce/verbs-api';
import { type Endpoint, type PingpongOptions, type Player, RECV_ID, SEND_ID } from './endpoint.ts';

/**
 * On each queue pair the next message leaves when the last one is done and the peer's has come; the client begins. It
 * is over when `iters` messages went each way, whichever queue pairs they took.
 * @returns seconds
 */
export async function play(
  endpoint: Endpoint,
  options: PingpongOptions,
  isClient: boolean,
  signal: AbortSignal,
): Promise<number> {
  const { iters } = options;
  const byQpn = new Map(endpoint.players.map((player) => [player.qp.qpNum, player]));
  const pending = new Map<Player, number>(endpoint.players.map((player) => [player, RECV_ID]));
  const post = (player: Player) => {
    endpoint.postSend(player);
    pending.set(player, RECV_ID | SEND_ID);
  };
  let received = 0;
  let sent = 0;
  const start = performance.now();
  if (isClient) for (const player of endpoint.players) post(player);
  const completions = Array.from({ length: 2 * endpoint.players.length }, () => new WorkCompletion());
  while (received < iters || sent < iters) {
    const count = await next(endpoint, options, completions, signal);
    for (const wc of completions.slice(0, count)) {
      if (!wc.ok) throw failure(wc, wc.wrIdNumber === SEND_ID && received >= iters && sent === iters - 1);
      const id = wc.wrIdNumber;
      if (id === RECV_ID) {
        received++;
        endpoint.useReceive();
      } else {
        sent++;
      }
      const player = byQpn.get(wc.qpNum)!;
      pending.set(player, pending.get(player)! & ~id);
      if (sent < iters && pending.get(player) === 0) post(player);
    }
  }
  return (performance.now() - start) / 1000;
}

/** A failed completion in plain words. */
const MEANINGS: Partial<Record<WcStatusName, string>> = {
  LOC_LEN_ERR: 'the peer sends larger messages; --size must be equal on both sides',
  REM_INV_REQ_ERR: 'the peer expects smaller messages; --size must be equal on both sides',
  RETRY_EXC_ERR: 'the peer no longer answers',
  RNR_RETRY_EXC_ERR: 'the peer no longer posts receives',
};

/** A peer ends when the last message has come. If the only ACK of that message is lost, it looks like a peer that died before. */
const LAST_ACK =
  'every message came but the acknowledgement of our last one: the peer ended, before it took that message or after';

function failure(wc: WorkCompletion, onlyLastAck: boolean): Error {
  const meaning = onlyLastAck && wc.status === 'RETRY_EXC_ERR' ? LAST_ACK : MEANINGS[wc.status];
  return completionError(wc, meaning);
}

/** The next completions: by polling, with a turn of the event loop now and then, or by events. */
async function next(
  { cq }: Endpoint,
  { events, timeout }: PingpongOptions,
  into: WorkCompletion[],
  signal: AbortSignal,
): Promise<number> {
  const deadline = performance.now() + timeout * 1000;
  for (;;) {
    for (let spin = 0; spin < 64; spin++) {
      const count = cq.pollInto(into);
      if (count > 0) return count;
      if (events) break;
    }
    signal.throwIfAborted();
    const left = deadline - performance.now();
    if (left <= 0) {
      throw new RoceError(
        'ERR_ROCE_TIMEOUT',
        `the peer was silent for ${timeout} s: did it end, or does it expect other --size, --iters or --mtu?`,
        { errno: 'EIO' },
      );
    }
    if (!events) {
      await nextTurn();
      continue;
    }
    const silence = AbortSignal.timeout(Math.ceil(left));
    await cq.wait({ signal: AbortSignal.any([signal, silence]) }).catch((error) => {
      if (!silence.aborted) throw error;
    });
  }
}
