/** The device's end of a connection, as a rule sees it: requests, receives, completions, memory. */
import type { PacketInput } from '@node-roce/wire';
import type { Completion, DeviceConnection, Post, Receive, Right, Window, WindowSpec } from './device.ts';
import type { Entry } from './line.ts';
import type { Need } from './needs.ts';

/** The part of a case that its sessions use. */
export interface Playing {
  /** ms, as in `Waits`. */
  readonly waits: { quiet: number; patience: number };
  readonly device: { readonly offers: ReadonlySet<string> };
  use(need: Need): void;
  want(ok: boolean, text: string): boolean;
  note(text: string): void;
  skip(why: string): never;
  send(packet: PacketInput): Entry;
  datagram(body: Uint8Array): Entry;
  wait(done: () => boolean, ms: number): Promise<void>;
  pass(ms: number): Promise<void>;
}

/** `n` bytes that are not all alike. */
export function bytes(n: number, seed = 1): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: n }, (_, i) => (i * 13 + seed * 31 + (i >> 8)) & 255);
}

export const same = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

/** Whether the device has an ability. */
function has<K extends keyof DeviceConnection>(
  connection: DeviceConnection,
  name: K,
): connection is DeviceConnection & Required<Pick<DeviceConnection, K>> {
  return connection[name] !== undefined;
}

/** The device's end of a connection. Members that the device has not make a rule not testable. */
export class DeviceSide {
  readonly #case: Playing;
  readonly #connection: DeviceConnection;

  constructor(t: Playing, connection: DeviceConnection) {
    this.#case = t;
    this.#connection = connection;
  }

  /** The connection, with a member that not every device has. @throws Untestable */
  #with<K extends keyof DeviceConnection>(need: Need, name: K): Required<Pick<DeviceConnection, K>> {
    this.#case.use(need);
    return has(this.#connection, name) ? this.#connection : this.#case.skip(`the device has no ${name}`);
  }

  post(opcode: Post['opcode'], options: Omit<Post, 'opcode'> = {}): Promise<void> {
    return this.#with('post', 'post').post({ opcode, ...options });
  }

  receive(receive: Receive): Promise<void> {
    return this.#with('receives', 'receive').receive(receive);
  }

  completions(want = 1, ms = this.#case.waits.patience): Promise<Completion[]> {
    return this.#with('completions', 'completions').completions(want, ms);
  }

  /** The first completions have to be these: `id:status`, in order. */
  async completed(wanted: readonly string[], of: string, ms?: number): Promise<Completion[]> {
    const got = await this.completions(wanted.length, ms);
    const text = got.map(({ id, status }) => `${id}:${status}`).join(', ') || 'none';
    this.#case.want(text === wanted.join(', '), `${of}: completions ${text}, wanted ${wanted.join(', ')}`);
    return got;
  }

  /** No completion may come in `ms`. @returns whether none came */
  async noCompletion(what: string, ms = this.#case.waits.quiet): Promise<boolean> {
    const got = await this.completions(1, ms);
    const text = got.map(({ id, status }) => `${id}:${status}`).join(', ');
    return this.#case.want(got.length === 0, `${what}: completed ${text}`);
  }

  /** Errors may come, no success. */
  async noSuccess(what: string, ms = this.#case.waits.quiet): Promise<void> {
    const got = await this.completions(1, ms);
    this.#case.want(!got.some(({ status }) => status === 'SUCCESS'), `${what}: completed with success`);
    this.#case.note(`${what}: ${got.length === 0 ? 'ignored' : got[0].status}`);
  }

  peek(offset: number, length: number): Promise<Uint8Array> {
    return this.#with('memory', 'peek').peek(offset, length);
  }

  poke(offset: number, data: Uint8Array): Promise<void> {
    return this.#with('memory', 'poke').poke(offset, data);
  }

  /** The region has to hold these bytes. */
  async holds(offset: number, data: Uint8Array, what: string): Promise<void> {
    this.#case.want(same(await this.peek(offset, data.length), data), what);
  }

  /** The little-endian value at an offset. */
  async peekU64(offset: number): Promise<bigint> {
    const b = await this.peek(offset, 8);
    return new DataView(b.buffer, b.byteOffset, 8).getBigUint64(0, true);
  }

  state(): Promise<string> {
    return this.#with('state', 'state').state();
  }

  fail(): Promise<void> {
    return this.#with('fail', 'fail').fail();
  }

  /** To SQD: requests that were begun are done, no others are begun. */
  drain(): Promise<void> {
    return this.#with('drain', 'drain').drain();
  }

  /** From SQD back to RTS. */
  resume(): Promise<void> {
    return this.#with('drain', 'resume').resume();
  }

  destroyQp(): Promise<void> {
    return this.#with('destroy', 'destroyQp').destroyQp();
  }

  deregister(): Promise<void> {
    return this.#with('deregister', 'deregister').deregister();
  }

  /** Binds a window to a part of the region, and waits for its completion. */
  async bind(spec: WindowSpec): Promise<Window> {
    const window = await this.#with('windows', 'bindWindow').bindWindow(spec);
    await this.completed([`${spec.id ?? 0}:SUCCESS`], `binding a window of type ${spec.type}`);
    return window;
  }

  /** Gives the region other rights; its key may change. */
  reregister(access: readonly Right[]): Promise<void> {
    return this.#with('reregister', 'reregister').reregister(access);
  }

  /** A region of the same rights in another protection domain. */
  foreignRegion(): Promise<{ va: bigint; rkey: number }> {
    return this.#with('domains', 'foreignRegion').foreignRegion();
  }

  /** The shared receive queue raises its event once fewer receives are left. */
  limitReceives(limit: number): Promise<void> {
    return this.#with('events', 'limitReceives').limitReceives(limit);
  }

  /** Asynchronous events of the device, by the names of `ibv_event_type_str`; waits up to `ms` for the first one. */
  events(ms = this.#case.waits.quiet): Promise<string[]> {
    return this.#with('events', 'events').events(ms);
  }
}
