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

/** ms in which a client repeats its REQ: those of Linux, 4.3 s; and those between two clients. The patience comes on top. */
const CALLS = 6000;
/** ms that the device may take to release a connection that no rule looks at any more. */
const RELEASES = 300;
const CA_GUID = 0x0200_0000_0000_0001n;

/** Messages of a client that has asked. */
type Called = 'RTU' | 'DREP' | 'REJ';

/** A connection that the device asks for, as a rule sees it. */
export class CalledSession {
  /** The first REQ that was heard of the call that is played. It may be a repetition. */
  req: Heard<'REQ'> | undefined;
  /** All REQs, by the communication id that the client has for its call. */
  readonly #calls = new Map<number, Heard<'REQ'>[]>();
  /** The first call that was heard twice. */
  #repeated: readonly Heard<'REQ'>[] | undefined;
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
    if (message.name === 'REQ') {
      this.#asked({ ...message, time });
    } else if ('localCommId' in message && message.localCommId === this.req?.localCommId) {
      this.#inbox.push({ ...message, time });
    }
  }

  #asked(req: Heard<'REQ'>): void {
    const before = this.#calls.get(req.localCommId);
    if (before === undefined) this.#calls.set(req.localCommId, [req]);
    else this.#repeated ??= before;
    before?.push(req);
    this.req ??= req;
  }

  /** ms until a client asks. */
  get #longest(): number {
    return CALLS + this.#case.waits.patience;
  }

  /** Waits for a REQ. */
  async isCalled(): Promise<boolean> {
    this.#case.device.call?.();
    await this.#case.wait(() => this.req !== undefined, this.#longest);
    return this.req !== undefined;
  }

  /**
   * Waits until a REQ comes again. Its call is then the one that is played: there may be several clients.
   * @returns the repetition; undefined: no call was heard twice
   */
  async repetition(ms: number): Promise<Heard<'REQ'> | undefined> {
    await this.#case.wait(() => this.#repeated !== undefined, ms);
    const [first, again] = this.#repeated ?? [this.req];
    this.req = first;
    return again;
  }

  /** Waits for a call that began after the first one, and plays it: of the first one, only the last REQ may have been heard. */
  async isCalledAnew(): Promise<boolean> {
    const isAnew = () => this.#calls.size > 1;
    if (!isAnew()) this.#case.device.call?.();
    // The client gives up after its last REQ, and another one asks: Linux waits as long as between two REQs.
    await this.#case.wait(isAnew, 2 * this.#longest);
    if (!isAnew()) return false;
    [this.req] = [...this.#calls.values()].at(-1) ?? [];
    return true;
  }

  /** REQs of the call that is played, up to now. */
  get asked(): number {
    return this.#calls.get(this.req?.localCommId ?? 0)?.length ?? 0;
  }

  /** The next message with a name; those before it are dropped. Undefined: silence. */
  async next<N extends Called>(name: N, ms = this.#case.waits.patience): Promise<Heard<N> | undefined> {
    await this.#case.wait(() => this.#inbox.some((heard) => heard.name === name), ms);
    const at = this.#inbox.findIndex((heard) => heard.name === name);
    // TypeScript does not see that the name is N.
    return at < 0 ? undefined : (this.#inbox.splice(0, at + 1)[at] as unknown as Heard<N>);
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

  #send(message: CmInput, to = this.req): void {
    const { transactionId, localCommId: remoteCommId } = to ?? {};
    const ids = { transactionId, localCommId: this.#id, remoteCommId };
    this.#case.send({
      bth: { opcode: 'UD_SEND_ONLY', destQp: GSI_QPN, migReq: true },
      extensions: { deth: { qkey: GSI_QKEY, srcQp: GSI_QPN } },
      payload: encodeCm({ ...ids, ...message } as CmInput),
    });
  }

  /** Ends the connection, and refuses the REQs of other calls: the clients go. */
  async close(): Promise<void> {
    const { req } = this;
    if (req === undefined) return;
    for (const [call] of this.#calls.values())
      if (!this.#isAnswered || call.localCommId !== req.localCommId) this.#refuse(call);
    if (this.#isAnswered) {
      this.#send({ name: 'DREQ', remoteQpn: req.localQpn });
      await this.next('DREP', RELEASES);
    }
    this.#calls.clear();
    this.req = undefined;
  }

  #refuse(call: Heard<'REQ'>): void {
    const [messageRejected, reason] = [CmRejMessage.REQ, CmRejReason.CONSUMER_DEFINED];
    this.#send({ name: 'REJ', messageRejected, reason }, call);
  }
}
