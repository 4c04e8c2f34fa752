/** The responder of UD and GSI: each message is one packet (IBTA vol 1 §9.8.3). */
import { dethQkey } from '@node-roce/wire';
import { WcOpcode, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { HeaderSl } from '../entry-words.ts';
import { GRH_BYTES, writeGrh } from '../grh.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import type { Responder } from './responder.ts';

/** Has no state of its own between packets: no receive stays in use. */
export class UdResponder implements Responder {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #receives: ReceiveQueue;
  readonly #grh = new Uint8Array(GRH_BYTES);

  constructor(context: Context, owner: Owner, receives: ReceiveQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#receives = receives;
  }

  get expectedPsn(): number {
    return 0;
  }

  get resources(): number {
    return 0;
  }

  get owed(): number {
    return 0;
  }

  awaits(): boolean {
    return true;
  }

  start(): void {}

  setResources(): void {}

  /** A datagram: 40 bytes of GRH, then the payload, into the next receive (§9.8.3, §11.4.1.2). */
  receive(packet: InboundPacket): void {
    const { info, slab, at, payload } = packet;
    const { counters } = this.#owner;
    const { qkey, pathMtu } = this.#owner.attributes;
    const receives = this.#receives;
    if (dethQkey(slab, at + info.offsets.deth) !== qkey) {
      counters.qkeyViolations++;
      return;
    }
    if (payload > pathMtu) {
      counters.droppedPackets++;
      return;
    }
    if (!receives.available()) {
      counters.outOfBuffer++;
      return;
    }
    const status = receives.begin();
    if (status !== WcStatus.SUCCESS) {
      this.#fail(status);
      return;
    }
    if (!receives.fits(GRH_BYTES + payload)) {
      // The receive waits for a datagram that it has room for, one of an SRQ in the SRQ (§9.9.3, class D).
      receives.giveBack();
      counters.droppedPackets++;
      return;
    }
    writeGrh(this.#grh, this.#context, packet);
    if (!receives.fill(0, GRH_BYTES, this.#grh) || !receives.fill(at + info.headerLength, payload)) {
      this.#fail(WcStatus.LOC_PROT_ERR);
      return;
    }
    counters.receivedMessages++;
    const sl = this.#grh[0] === 0 ? HeaderSl.IPV4 : HeaderSl.IPV6;
    receives.deliver(WcOpcode.RECV, GRH_BYTES + payload, packet, sl);
  }

  transmit(): number {
    return 0;
  }

  stop(): void {}

  reset(): void {}

  close(): void {}

  check(): string | undefined {
    return this.#receives.inUse ? 'a receive is in use between datagrams' : undefined;
  }

  /** A fault of our receive ends the queue pair, with a completion and without an event (§11.6.3). */
  #fail(status: number): void {
    this.#receives.fail(status);
    this.#owner.toError();
  }
}
