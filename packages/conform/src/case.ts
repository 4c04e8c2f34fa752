/**
 * One playing of one rule: the connections that it opened, the frames that passed, what was wanted and not seen.
 *
 * - to open a connection: `rc`, `req`, `uc`, `ud`; by the connection manager: `cm`
 * - to judge: `want`, `note`, `skip`
 * - below the connections: `send`, `datagram`
 */
import { buildPacket, formatIpAddress, icrcV2, type PacketInput, writeIcrc } from '@node-roce/wire';
import { CalledSession } from './cm-called.ts';
import { type CmNumbers, type CmPlaying, CmSession } from './cm-session.ts';
import { type ConnectionSpec, type Device, Untestable } from './device.ts';
import type { Playing } from './device-side.ts';
import { ETHERNET_BYTES, headersBelow, setLengths, sourceOfFrame } from './headers.ts';
import { type Entry, entryOf, type Line } from './line.ts';
import { NEEDS, type Need } from './needs.ts';
import type { CaseConnection } from './passive/connection.ts';
import { Session } from './session.ts';

export interface Waits {
  /** ms without a packet that count as silence. */
  quiet: number;
  /** ms to wait for a packet that is due. */
  patience: number;
  /** ms by which an upper bound may be missed. */
  slack: number;
}

/** How a connection differs from the usual one. */
export type ConnectionOptions = Partial<Omit<ConnectionSpec, 'service' | 'address' | 'qpn' | 'uses'>>;

const ICRC_BYTES = 4;
/** Packets of a case: no rule has a tenth of them. A device that floods ends the case, before it keeps the tester for long. */
const MAX_ENTRIES = 20_000;
/** Characters of a deviation: it may list all packets that came. */
const MAX_TEXT = 1000;
/** UDP port of the tester. */
const SOURCE_PORT = 0xc123;

/** The parts that the cases of a run share. */
export interface Bench {
  line: Line;
  device: Device;
  waits: Waits;
  /** Connections so far: each has a QPN and PSNs that the ones before it had not. */
  connections: number;
  /** Whether a service was there when it was last looked for. */
  isListening?: boolean;
}

/** One playing of a rule, as the rule sees it. */
export class Case implements Playing, CmPlaying {
  readonly #needs: readonly Need[];
  readonly #bench: Bench;
  readonly entries: Entry[] = [];
  readonly sessions: Session[] = [];
  readonly #cmSessions: CmSession[] = [];
  readonly #called: CalledSession[] = [];
  readonly deviations: string[] = [];
  readonly notes: string[] = [];
  /** Needs that the rule made use of. */
  readonly used = new Set<Need>();

  /** @param needs those that the rule declares */
  constructor(needs: readonly Need[], bench: Bench) {
    this.#needs = needs;
    this.#bench = bench;
  }

  get line(): Line {
    return this.#bench.line;
  }

  get device(): Device {
    return this.#bench.device;
  }

  get waits(): Waits {
    return this.#bench.waits;
  }

  /** The reliable ones. */
  get connections(): CaseConnection[] {
    const own = this.sessions.flatMap(({ spec, qpn }) => {
      const { service, qpn: testerQpn, psn, pathMtu } = spec;
      return service === 'rc' ? [{ testerQpn, deviceQpn: qpn, psn, pathMtu }] : [];
    });
    return [...own, ...this.#cmSessions.flatMap((session) => session.connection ?? [])];
  }

  /** Notes a deviation unless `ok`. The text is the same each time: no measured values. */
  want(ok: boolean, text: string): boolean {
    if (!ok) this.deviations.push(text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)} …` : text);
    return ok;
  }

  /** Shows a value in the report, without a verdict. */
  note(text: string): void {
    this.notes.push(text);
  }

  /** @throws Untestable always */
  skip(why: string): never {
    throw new Untestable(why);
  }

  /** @throws Untestable if the device or the line does not offer it */
  use(need: Need): void {
    this.used.add(need);
    if (!this.line.offers.has(need) && !this.device.offers.has(need)) this.skip(`needs ${NEEDS[need]}`);
  }

  rc(options: ConnectionOptions = {}): Promise<Session> {
    return this.#open('rc', options);
  }

  /** A reliable connection whose requester has credits without limit. */
  async req(options: ConnectionOptions = {}): Promise<Session> {
    const session = await this.rc(options);
    await session.warm();
    return session;
  }

  uc(options: ConnectionOptions = {}): Promise<Session> {
    return this.#open('uc', { access: ['write'], regionAccess: ['write'], ...options });
  }

  ud(options: ConnectionOptions = {}): Promise<Session> {
    return this.#open('ud', options);
  }

  /** Extended reliable connections: the device is the end that responds, or the one that requests. */
  xrc(end: 'target' | 'initiator', options: ConnectionOptions = {}): Promise<Session> {
    return this.#open(`xrc-${end}`, options);
  }

  /**
   * A connection at the device's connection manager, for which nothing was sent yet; somebody listens.
   * @param numbers those that it shares with another one
   */
  async cm(numbers: Partial<CmNumbers> = {}): Promise<CmSession> {
    this.use('listener');
    const serviceId = this.device.listener?.serviceId ?? 0n;
    if (this.#cmSessions.length === 0) {
      const before = this.entries.length;
      const { isListening } = this.#bench;
      this.#bench.isListening =
        isListening !== false && (await this.#cmSession({ serviceId }).listening(isListening === true));
      if (!this.#bench.isListening) {
        if (isListening) throw new Error('the service at the connection manager is gone');
        this.skip(
          'nobody listens at the connection manager: run rping -s -P there, in a loop; -p names the port of another service',
        );
      }
      this.entries.splice(before);
    }
    return this.#cmSession({ serviceId, ...numbers });
  }

  /** A connection that a client at the device asks for. It may be the repetition of a REQ that came before. */
  async called(): Promise<CalledSession> {
    this.use('caller');
    const session = new CalledSession(this, 0x2000_0000 + this.#bench.connections++);
    this.#called.push(session);
    if (!(await session.isCalled()))
      this.skip(`no client at the device connects to the tester: rping -c -a ${this.line.tester.ip}`);
    return session;
  }

  /** The device's counters, by the names of its driver. */
  counters(): Promise<Readonly<Record<string, number>>> {
    this.use('counters');
    return this.device.counters?.() ?? this.skip('the device has no counters');
  }

  #cmSession(numbers: Partial<CmNumbers> & { serviceId: bigint }): CmSession {
    const number = this.#bench.connections++;
    const session = new CmSession(this, {
      id: 0x1000_0000 + number * 16,
      guid: 0x0200_0000_0000_0000n + BigInt(number),
      qpn: 0x100 + ((number * 16) & 0x7f_ffff),
      psn: 0x2000 + ((number * 0x2_0a37) & 0x3f_ffff),
      ...numbers,
    });
    this.#cmSessions.push(session);
    return session;
  }

  async #open(service: ConnectionSpec['service'], options: ConnectionOptions): Promise<Session> {
    this.use(service === 'xrc-target' || service === 'xrc-initiator' ? 'xrc' : service);
    const number = this.#bench.connections++;
    const spec: ConnectionSpec = {
      service,
      access: ['write', 'read', 'atomic'],
      regionAccess: ['write', 'read', 'atomic'],
      uses: this.#needs.filter((need) => need === 'write' || need === 'read' || need === 'atomic'),
      size: 65_536,
      address: this.line.tester.ip,
      qpn: 0x100 + ((number * 16) & 0x7f_ffff),
      psn: 0x1000 + ((number * 0x1_0539) & 0x3f_ffff),
      devicePsn: 0x2000 + ((number * 0x2_0a37) & 0x3f_ffff),
      pathMtu: 1024,
      maxRdAtomic: 4,
      maxDestRdAtomic: 4,
      minRnrTimer: 12,
      timeout: 14,
      retryCnt: 6,
      rnrRetry: 6,
      receives: 0,
      receiveLength: 4096,
      qkey: 0x1111_1111,
      windows: false,
      state: 'RTS',
      ...options,
    };
    if (spec.receives > 0) this.use('receives');
    if (spec.srq !== undefined) this.use('srq');
    if (spec.state === 'RTR') this.use('rtr');
    if (spec.state === 'INIT') this.use('init');
    if (spec.windows) this.use('windows');
    if (spec.access.includes('flush')) this.use('flush');
    if (differs(service, options)) this.use('attributes');
    if (service === 'rc' && options.regionAccess !== undefined) this.use('regions');
    const session = new Session(this, spec, await this.device.connect(spec));
    this.sessions.push(session);
    return session;
  }

  /** Sends a packet to the device; the addresses are the line's unless others are given. */
  send({ ip, udp, ...packet }: PacketInput): Entry {
    const { tester, device } = this.line;
    return this.sendFrame(
      buildPacket({
        ethernet: { source: tester.mac, destination: device.mac },
        ip: { source: tester.ip, destination: device.ip, ...ip } as PacketInput['ip'],
        udp: { sourcePort: this.line.sourcePort ?? SOURCE_PORT, ...udp },
        ...packet,
      }),
    );
  }

  /** Sends a datagram of any bytes to the RoCE port, with a right ICRC at its end if it is long enough for a BTH. */
  datagram(body: Uint8Array): Entry {
    const hasIcrc = body.length >= 12;
    const { tester, device, sourcePort = SOURCE_PORT } = this.line;
    const headers = headersBelow(tester, device, sourcePort);
    const length = body.length + (hasIcrc ? ICRC_BYTES : 0);
    const frame = new Uint8Array(headers.length + length);
    frame.set(headers);
    setLengths(frame, headers.length);
    frame.set(body, headers.length);
    const end = headers.length + body.length;
    if (hasIcrc) writeIcrc(frame, end, icrcV2(frame, ETHERNET_BYTES, end));
    return this.sendFrame(frame);
  }

  sendFrame(frame: Uint8Array): Entry {
    const entry = entryOf(this.line.now(), 'tester', frame);
    this.entries.push(entry);
    this.line.send(frame);
    return entry;
  }

  /** An address of the same network that is neither end's. */
  otherAddress(): string {
    this.use('spoof');
    const { tester, device } = this.line;
    const candidates = [97, 98, 99].map((last) => tester.ip.replace(/\d+$/, String(last)));
    return candidates.find((ip) => ip !== tester.ip && ip !== device.ip)!;
  }

  /** Waits until `done`, at most `ms`; what comes meanwhile is shared out among the sessions. */
  async wait(done: () => boolean, ms: number): Promise<void> {
    const pump = () => {
      for (const { time, frame } of this.line.take()) this.#arrived(entryOf(time, 'device', frame));
      return done();
    };
    if (!pump()) await this.line.wait(pump, ms);
    pump();
  }

  /** Lets time pass. */
  async pass(ms: number): Promise<void> {
    await this.wait(() => false, ms);
  }

  #arrived(entry: Entry): void {
    // Other hosts of the network have no part in the case: neither their packets, nor what is no packet.
    if (sourceOf(entry) !== this.line.device.ip) return;
    if (this.entries.length >= MAX_ENTRIES)
      throw new Error(`more than ${MAX_ENTRIES} packets in one rule: the device does not stop sending`);
    this.entries.push(entry);
    for (const session of [...this.sessions, ...this.#cmSessions, ...this.#called]) session.arrived(entry);
  }

  /** Closes all connections; each is tried. */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (const session of [...this.sessions, ...this.#cmSessions, ...this.#called])
      await session.close().catch((error) => failures.push(error));
    if (failures.length > 0) throw failures[0];
  }
}

/** Whether a connection has attributes that only a device of one's own choice gives. */
function differs(service: ConnectionSpec['service'], options: ConnectionOptions): boolean {
  const { access, pathMtu, maxDestRdAtomic, size, minRnrTimer, qkey } = options;
  if (service === 'rc' && access !== undefined) return true;
  return [pathMtu, maxDestRdAtomic, size, minRnrTimer, qkey].some((value) => value !== undefined);
}

function sourceOf({ packet, frame }: Entry): string | undefined {
  if (packet !== undefined) return formatIpAddress(packet.ip.source);
  return sourceOfFrame(frame);
}
