/** A requester that always has something to send, and a peer by hand that looks at its window. */
import { NakCode, Opcode, psnAdd } from '@node-roce/wire';
import type { Recovery } from '../src/index.ts';
import { ByHand } from './by-hand.ts';

const FIRST = 0x500;
const MTU = 256;
/** Packets that may be in flight, at most. */
const MOST = 512;
/** A WRITE takes 2^18 PSNs. */
const LENGTH = 1 << 26;

/**
 * A requester that always has something to send; `fill` returns how many packets it adds until it has to wait.
 * @param reset one whose queue pair is in RESET: it is connected again, with the same PSNs
 * @param recovery of the device
 */
export function requester(attr = {}, reset?: ByHand, recovery: Partial<Recovery> = {}) {
  const hand = reset ?? new ByHand({ sqPsn: FIRST, pathMtu: MTU, ...attr }, { recovery });
  reset?.connect({ sqPsn: FIRST, pathMtu: MTU, ...attr });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(LENGTH / 4));
  const sge = Array.from({ length: 4 }, () => ({ mr, length: LENGTH / 4 }));
  const post = () => side.post({ opcode: 'RDMA_WRITE', sge, flags: 0, remote: { addr: 0n, rkey: 0 } });
  for (let i = 0; i < 60; i++) post();
  const next = () => side.adapter.queryQp(side.qp.qpn).attr.sqPsn!;
  let acknowledged = FIRST;
  const answer = (psn: number, syndrome: number) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome } });
  return {
    hand,
    fill: () => hand.drain(),
    /** Acknowledges all that is out, or so many packets of it. */
    acknowledge(packets = (next() - acknowledged) & 0xff_ffff) {
      acknowledged = psnAdd(acknowledged, packets);
      answer(psnAdd(acknowledged, -1), 0x1f);
    },
    /** The peer reports that the packet after the first `before` outstanding ones was lost. */
    lose(before = 0) {
      acknowledged = psnAdd(acknowledged, before);
      answer(acknowledged, NakCode.PSN_SEQUENCE_ERROR);
    },
    /** Opens the window as far as it goes. */
    open() {
      for (let i = 0; i < 1000; i++) {
        if (this.fill() === MOST) return;
        this.acknowledge();
      }
      throw new Error('the window does not open');
    },
  };
}
