/**
 * A connection that a client at the device asks for: the tester is the side that listens.
 *
 * - messages to the device: `rep`
 * - messages of the device: `next`
 */
import {
  type CmInput,
  CmRejMessage,
  CmRejReason,
  decodeCm,
  encodeCm,
  GSI_QKEY,
  GSI_QPN,
  MAD_BYTES,
} from '@node-roce/wire';
import type { CmPlaying, Heard } from './cm-session.ts';
import type { Entry } from './line.ts';

/** ms in which a client repeats its REQ: those of Linux, 4.3 s; and those between two clients. */
const CALLS = 6000;
/** ms that the device may take to release a connection that no rule looks at any more. */
const RELEASES = 300;
const CA_GUID = 0x0200_0000_0000_0001n;

/** Messages of a client. */
type Called = 'REQ' | 'RTU' | 'DREP' | 'REJ';

/** A connection that the device asks for, as a rule sees it. */
export class CalledSession {
  /** The first REQ. */
  req: Heard<'REQ'> | undefined;
  readonly #case: CmPlaying;
  /** Communication id of the tester. */
  readonly #id: number;
  readonly #inbox: Heard[] = [];
  #isAnswered = false;

  constructor(t: CmPlaying, id: number) {
    this.#case = t;
    this.#id = id;
  }

  arrived({ packet, time }: Entry): void {
    if (packet?.bth.destQp !== GSI_QPN || packet.payload.length !== MAD_BYTES) return;
    const decoded = decodeCm(packet.payload);
    if (!decoded.ok) return;
    const { message } = decoded;
    if (message.name === 'REQ' && this.req === undefined) {
      this.req = { ...message, time };
    } else if ('localCommId' in message && message.localCommId === this.req?.localCommId) {
      this.#inbox.push({ ...message, time });
    }
  }

  /** Waits for a REQ. */
  async isCalled(): Promise<boolean> {
    await this.#case.wait(() => this.req !== undefined, CALLS);
    return this.req !== undefined;
  }

  /** The next message with a name; those before it are dropped. Undefined: silence. */
  async next<N extends Called>(name: N, ms = this.#case.waits.patience): Promise<Heard<N> | undefined> {
    await this.#case.wait(() => this.#inbox.some((heard) => heard.name === name), ms);
    const at = this.#inbox.findIndex((heard) => heard.name === name);
    // TypeScript does not see that the name is N.
    return at < 0 ? undefined : (this.#inbox.splice(0, at + 1)[at] as unknown as Heard<N>);
  }

  /** How many messages with a name come in `ms`. */
  async count(name: Called, ms: number): Promise<number> {
    await this.#case.pass(ms);
    return this.#inbox.splice(0).filter((heard) => heard.name === name).length;
  }

  /** Accepts the connection. */
  rep(): void {
    this.#isAnswered = true;
    const { initiatorDepth, responderResources } = this.req ?? {};
    this.#send({
      name: 'REP',
      localQpn: 0x100 + (this.#id & 0xffff),
      startingPsn: 0x1000,
      localCaGuid: CA_GUID,
      responderResources: initiatorDepth,
      initiatorDepth: responderResources,
      rnrRetryCount: 7,
    });
  }

  #send(message: CmInput): void {
    const { transactionId, localCommId: remoteCommId } = this.req ?? {};
    const ids = { transactionId, localCommId: this.#id, remoteCommId };
    this.#case.send({
      bth: { opcode: 'UD_SEND_ONLY', destQp: GSI_QPN, migReq: true },
      extensions: { deth: { qkey: GSI_QKEY, srcQp: GSI_QPN } },
      payload: encodeCm({ ...ids, ...message } as CmInput),
    });
  }

  /** Refuses the REQ, or ends the connection: the client goes. */
  async close(): Promise<void> {
    if (this.req === undefined) return;
    if (this.#isAnswered) {
      this.#send({ name: 'DREQ', remoteQpn: this.req.localQpn });
      await this.next('DREP', RELEASES);
    } else {
      this.#send({
        name: 'REJ',
        messageRejected: CmRejMessage.REQ,
        reason: CmRejReason.CONSUMER_DEFINED,
      });
    }
    this.req = undefined;
  }
}
