/**
 * The kernel's side of /dev/infiniband/rdma_cm (core/ucma.c), for Debian's librdmacm: commands of programs, carried out by the connection
 * manager of the device. AF_IB is refused, so that librdmacm takes the commands for IP, as on old kernels.
 */
import { constants } from 'node:os';
import { Endpoint } from '@node-roce/rdmacm/parts';
import type { Device } from '@node-roce/verbs-api';
import { PortSpace } from '@node-roce/wire';
import { CALLS, type Request } from '../messages.ts';
import { encode, Failed, Malformed, message } from '../protocol.ts';
import {
  ADDRESS_RESPONSE_BYTES,
  addressResponse,
  Command,
  Fields,
  numberResponse,
  QP_ATTR_BYTES,
  QpStates,
  qpAttrResponse,
  ROUTE_RESPONSE_BYTES,
  routeResponse,
} from './abi.ts';
import type { PortSpaceName } from './addresses.ts';
import { QP_TYPES, type QpTypeName } from './attributes.ts';
import { Channel } from './channel.ts';
import { type Group, type Surroundings, UcmaId } from './id.ts';
import { Services } from './services.ts';

const { EADDRINUSE, EAGAIN, EINVAL, ENOENT, ENOMEM, ENOSYS } = constants.errno;

/** Ids and groups of a device at most. */
const MAX_IDS = 65_536;
/** REJ for a reason of the program's (IBTA vol 1 §12.6.7.2). */
const CONSUMER_DEFINED = 28;
const VENDOR_OPTION_NOT_SUPPORTED = 35;
const REASONS = [CONSUMER_DEFINED, VENDOR_OPTION_NOT_SUPPORTED];
/** `rdma_set_option` (level ID). */
const Option = { TOS: 0, REUSEADDR: 1, AFONLY: 2, ACK_TIMEOUT: 3 } as const;
const OPTION_LEVEL_ID = 0;
const QUERY_ADDRESS = 0;
const NUMBER_BYTES = 4;

const PORT_SPACES = new Map<number, PortSpaceName>(
  Object.entries(PortSpace).map(([name, number]) => [number, name as PortSpaceName]),
);

type Run = (channel: Channel, fields: Fields) => Buffer | undefined | Promise<Buffer | undefined>;

/** The connection manager of one device, as C programs see it. */
export class UcmaManager {
  readonly #channels = new Map<string, Channel>();
  readonly #ids = new Map<number, UcmaId>();
  readonly #groups = new Map<number, Group>();
  readonly #around: Surroundings;
  #last = 0;

  constructor(device: Device) {
    const endpoint = Endpoint.of(device);
    this.#around = {
      endpoint,
      services: new Services(endpoint),
      nodeGuid: Buffer.from(device.query().nodeGuid.replaceAll(':', ''), 'hex'),
      adopt: (id) => this.#number(id),
      forget: (id) => void this.#ids.delete(id.number),
    };
  }

  /** Ids that programs have. */
  get size(): number {
    return this.#ids.size;
  }

  /** Those of them that listen. */
  get listening(): number {
    return this.#around.services.size;
  }

  /**
   * Opens a channel.
   *
   * @param signal writes a byte to the program's descriptor
   */
  open(signal: () => void): Channel {
    const channel = new Channel(signal);
    this.#channels.set(keyOf(channel.token), channel);
    return channel;
  }

  /** The last descriptor of a channel is closed: its ids end with it. */
  async close(channel: Channel): Promise<void> {
    this.#channels.delete(keyOf(channel.token));
    for (const id of [...this.#ids.values()]) if (id.channel === channel) await this.#destroy(id);
  }

  /** Carries out a command, and returns the reply. */
  async command(request: Request<'UCMA_COMMAND'>): Promise<Buffer> {
    const { token, command, out, in: length } = request;
    if (length > request.bytes.length) throw new Malformed('a payload that is too short');
    const [bytes, more] = [request.bytes.subarray(0, length), request.bytes.subarray(length)];
    const channel = this.#channels.get(keyOf(token));
    const other = command === Command.MIGRATE_ID ? this.#channels.get(keyOf(more)) : undefined;
    const answer = (errno: number, response: Uint8Array = new Uint8Array(0)) => {
      const owed = { own: channel?.owed(), other: other === channel ? 0 : other?.owed() };
      return message(errno, encode(CALLS.UCMA_COMMAND.reply, { ...owed, response }));
    };
    if (!channel) return answer(EINVAL);
    try {
      const run = this.#commands[command];
      if (!run) throw new Failed(command in COMMAND_NAMES ? ENOSYS : EINVAL);
      return answer(0, await run(channel, new Fields(bytes, out, more)));
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === undefined) throw error;
      return answer(errno, Buffer.from((error as Error).message));
    }
  }

  #number(owner: { number: number }): void {
    do this.#last = (this.#last + 1) & 0x7fff_ffff;
    while (this.#ids.has(this.#last) || this.#groups.has(this.#last));
    owner.number = this.#last;
    if (owner instanceof UcmaId) this.#ids.set(this.#last, owner);
    else this.#groups.set(this.#last, owner as Group);
  }

  #room(): void {
    if (this.#ids.size + this.#groups.size >= MAX_IDS) throw new Failed(ENOMEM);
  }

  /** ENOENT where there is no such id, EINVAL where it is of another channel. */
  #get(channel: Channel, number: number): UcmaId {
    const id = this.#ids.get(number);
    if (!id) throw new Failed(ENOENT);
    if (id.channel !== channel) throw new Failed(EINVAL);
    return id;
  }

  async #destroy(id: UcmaId): Promise<void> {
    this.#ids.delete(id.number);
    for (const group of id.groups) this.#groups.delete(group.number);
    await id.destroy();
  }

  readonly #commands: Record<number, Run> = {
    [Command.CREATE_ID]: (channel, from) => {
      from.room(NUMBER_BYTES);
      this.#room();
      const portSpace = PORT_SPACES.get(from.u16(16));
      if (!portSpace) throw new Failed(EINVAL);
      const qpType = qpTypeOf(portSpace, from.u8(18));
      const id = new UcmaId(this.#around, { channel, uid: from.u64(0), portSpace, qpType });
      this.#number(id);
      return numberResponse(id.number);
    },
    [Command.DESTROY_ID]: async (channel, from) => {
      from.room(NUMBER_BYTES);
      const id = this.#get(channel, from.u32(8));
      await this.#destroy(id);
      return numberResponse(id.reported);
    },
    [Command.BIND_IP]: (channel, from) => this.#bind(this.#get(channel, from.u32(36)), from, 8),
    [Command.BIND]: (channel, from) => this.#bind(this.#get(channel, from.u32(0)), from, 8),
    [Command.RESOLVE_IP]: async (channel, from) => {
      const id = this.#get(channel, from.u32(56));
      await id.resolveAddress(from.address(0), from.address(28));
      return undefined;
    },
    [Command.RESOLVE_ADDR]: async (channel, from) => {
      const id = this.#get(channel, from.u32(0));
      const source = from.u16(8) === 0 ? undefined : from.address(16);
      await id.resolveAddress(source, from.address(144));
      return undefined;
    },
    [Command.RESOLVE_ROUTE]: (channel, from) => {
      this.#get(channel, from.u32(0)).resolveRoute();
      return undefined;
    },
    [Command.QUERY_ROUTE]: (channel, from) => {
      from.room(ROUTE_RESPONSE_BYTES - 8);
      const { addresses } = this.#get(channel, from.u32(8));
      return routeResponse(addresses.places(this.#around.nodeGuid), addresses.path);
    },
    [Command.QUERY]: (channel, from) => {
      const id = this.#get(channel, from.u32(8));
      if (from.u32(12) !== QUERY_ADDRESS) throw new Failed(ENOSYS);
      from.room(ADDRESS_RESPONSE_BYTES - 8);
      return addressResponse(id.addresses.places(this.#around.nodeGuid));
    },
    [Command.CONNECT]: async (channel, from) => {
      await this.#get(channel, from.u32(272)).connect(from.parameters(0));
      return undefined;
    },
    [Command.LISTEN]: async (channel, from) => {
      await this.#get(channel, from.u32(0)).listen(from.u32(4) | 0);
      return undefined;
    },
    [Command.ACCEPT]: async (channel, from) => {
      await this.#get(channel, from.u32(280)).accept(from.u64(0), from.parameters(8));
      return undefined;
    },
    [Command.REJECT]: async (channel, from) => {
      const id = this.#get(channel, from.u32(0));
      const reason = from.u8(5) || CONSUMER_DEFINED;
      if (!REASONS.includes(reason)) throw new Failed(EINVAL);
      await id.reject(reason, from.bytes(8, from.u8(4)));
      return undefined;
    },
    [Command.DISCONNECT]: async (channel, from) => {
      await this.#get(channel, from.u32(0)).disconnect();
      return undefined;
    },
    [Command.INIT_QP_ATTR]: (channel, from) => {
      from.room(QP_ATTR_BYTES);
      const id = this.#get(channel, from.u32(8));
      const state = from.u32(12);
      if (state > QpStates.ERR) throw new Failed(EINVAL);
      return qpAttrResponse(state, id.attributes(state));
    },
    [Command.GET_EVENT]: (channel, from) => {
      from.roomForEvent();
      const event = channel.take();
      if (!event) throw new Failed(EAGAIN);
      return event;
    },
    [Command.SET_OPTION]: (channel, from) => {
      setOption(this.#get(channel, from.u32(8)), from.u32(12), from.u32(16), from.more);
      return undefined;
    },
    [Command.NOTIFY]: (channel, from) => {
      // The engine reports to the connection manager itself that a queue pair has received a packet.
      this.#get(channel, from.u32(0));
      return undefined;
    },
    [Command.JOIN_IP_MCAST]: (channel, from) => this.#join(channel, from, from.u32(44), 16),
    [Command.JOIN_MCAST]: (channel, from) => {
      if (from.u16(22) > 1) throw new Failed(EINVAL);
      return this.#join(channel, from, from.u32(16), 24);
    },
    [Command.LEAVE_MCAST]: (channel, from) => {
      from.room(NUMBER_BYTES);
      const group = this.#groups.get(from.u32(8));
      if (!group) throw new Failed(ENOENT);
      if (group.of.channel !== channel) throw new Failed(EINVAL);
      this.#groups.delete(group.number);
      group.of.groups.delete(group);
      channel.drop(group);
      return numberResponse(group.reported);
    },
    [Command.MIGRATE_ID]: (channel, from) => {
      from.room(NUMBER_BYTES);
      const before = this.#channels.get(keyOf(from.more));
      if (!before) throw new Failed(EINVAL);
      const id = this.#get(before, from.u32(8));
      id.channel = channel;
      before.move(id, channel);
      for (const group of id.groups) before.move(group, channel);
      return numberResponse(id.reported);
    },
  };

  #bind(id: UcmaId, from: Fields, at: number): undefined {
    id.bind(from.address(at));
  }

  #join(channel: Channel, from: Fields, number: number, at: number): Buffer {
    from.room(NUMBER_BYTES);
    this.#room();
    const of = this.#get(channel, number);
    const group: Group = { number: 0, reported: 0, of };
    const place = from.address(at);
    this.#number(group);
    try {
      of.join(group, from.u64(8), place);
    } catch (error) {
      this.#groups.delete(group.number);
      throw error;
    }
    return numberResponse(group.number);
  }
}

const COMMAND_NAMES: Record<number, string> = Object.fromEntries(
  Object.entries(Command).map(([name, number]) => [number, name]),
);

const keyOf = (token: Uint8Array): string => Buffer.from(token).toString('latin1');

/** The port spaces decide, but for IB, where the program does. */
function qpTypeOf(portSpace: PortSpaceName, asked: number): QpTypeName {
  if (portSpace === 'TCP') return 'RC';
  if (portSpace !== 'IB') return 'UD';
  const type = QP_TYPES[asked as keyof typeof QP_TYPES];
  if (!type) throw new Failed(EINVAL);
  return type;
}

function setOption(id: UcmaId, level: number, name: number, value: Uint8Array): void {
  if (level !== OPTION_LEVEL_ID) throw new Failed(ENOSYS);
  const size = name === Option.TOS || name === Option.ACK_TIMEOUT ? 1 : 4;
  const known: number[] = Object.values(Option);
  if (!known.includes(name)) throw new Failed(ENOSYS);
  if (value.length !== size) throw new Failed(EINVAL);
  const isOn = value.some((byte) => byte !== 0);
  if (name === Option.TOS) id.addresses.trafficClass = value[0];
  else if (name === Option.ACK_TIMEOUT) id.ackTimeout = value[0] & 0x1f;
  else if (name === Option.REUSEADDR) id.addresses.reuses = isOn;
  else id.addresses.isV6Only = isOn;
}

/** The errno of an error of the connection manager's. */
function errnoOf(error: unknown): number | undefined {
  const { errno } = error as { errno?: unknown };
  if (typeof errno === 'number') return errno;
  if (typeof errno !== 'string') return undefined;
  return errno === 'ENOTCONN'
    ? EINVAL
    : (constants.errno[errno as keyof typeof constants.errno] ?? EADDRINUSE);
}
