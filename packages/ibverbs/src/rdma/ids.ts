/** Ids and event channels: what librdmacm's calls make, before the objects of `@node-roce/rdmacm`. */
import { listInterfaces } from '@node-roce/link';
import { CmId, EventChannel, type IdOptions, type PortSpaceName } from '@node-roce/rdmacm';
import { invalid } from '@node-roce/transport';
import type { Device } from '@node-roce/verbs-api';
import { checkKind, ibv_context, type ibv_cq, ibv_device, type ibv_pd, type ibv_qp } from '../objects.ts';
import { RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP } from './constants.ts';

const PORT_SPACES = new Map<number, PortSpaceName>([
  [RDMA_PS_IPOIB, 'IPOIB'],
  [RDMA_PS_TCP, 'TCP'],
  [RDMA_PS_UDP, 'UDP'],
  [RDMA_PS_IB, 'IB'],
]);

/** `struct rdma_event_channel`. There is no `fd`: `rdma_get_cm_event` is awaited. */
export class rdma_event_channel {
  readonly rdmacm = new EventChannel<CmId>();
}

/** The context of each device: the same one for all its ids. */
const contexts = new WeakMap<Device, ibv_context>();

function contextOf(device: Device): ibv_context {
  let context = contexts.get(device);
  if (!context) {
    // A link of the program's own has no interface.
    const nic = device.facts.interface ?? listInterfaces()[0];
    context = new ibv_context(new ibv_device(nic), device);
    contexts.set(device, context);
  }
  return context;
}

const ids = new WeakMap<CmId, rdma_cm_id>();

/** `struct rdma_cm_id`. */
export class rdma_cm_id {
  readonly channel: rdma_event_channel | null;
  /** The program's own value. */
  context: unknown;
  /** One of RDMA_PS_… . */
  readonly ps: number;
  qp: ibv_qp | null = null;
  pd: ibv_pd | null = null;
  send_cq: ibv_cq | null = null;
  recv_cq: ibv_cq | null = null;
  /** Objects that `rdma_create_qp` made because the program gave none. */
  readonly made: { pd?: ibv_pd; cqs: ibv_cq[] } = { cqs: [] };
  /** The last group that was joined, of which the next event speaks. */
  group: string | undefined;
  /** Port of `rdma_bind_addr` or `rdma_listen`. */
  port = 0;
  /** Options that `rdma_set_option` has set, and those beyond C. */
  readonly options: IdOptions;
  #rdmacm: CmId | undefined;

  constructor(channel: rdma_event_channel | null, context: unknown, ps: number, options: IdOptions) {
    const portSpace = PORT_SPACES.get(ps);
    if (!portSpace) throw invalid('ps', `${ps}`, 'RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB or RDMA_PS_IB');
    this.channel = channel && checkedChannel(channel);
    this.context = context;
    this.ps = ps;
    this.options = { ...options, portSpace, ...(channel ? { channel: channel.rdmacm } : {}) };
  }

  /** The id of a request, which the peer and its listener have made. */
  static ofRequest(rdmacm: CmId, listener: rdma_cm_id): rdma_cm_id {
    const known = ids.get(rdmacm);
    if (known) return known;
    const id = new rdma_cm_id(listener.channel, listener.context, listener.ps, listener.options);
    id.#rdmacm = rdmacm;
    ids.set(rdmacm, id);
    return id;
  }

  /** Made with the first call that needs it: options are set before. */
  get rdmacm(): CmId {
    if (!this.#rdmacm) {
      this.#rdmacm = new CmId(this.options);
      ids.set(this.#rdmacm, this);
    }
    return this.#rdmacm;
  }

  /** Whether options can still be set. */
  get isNew(): boolean {
    return this.#rdmacm === undefined;
  }

  /** The device, once an address is bound or resolved; else null. */
  get verbs(): ibv_context | null {
    try {
      return this.#rdmacm ? contextOf(this.#rdmacm.device) : null;
    } catch {
      return null;
    }
  }
}

/** The id that a call was given. Throws EINVAL for NULL, which a call before may have left, and for another kind. */
export function checkedId(id: rdma_cm_id, name = 'id'): rdma_cm_id {
  checkKind(name, id, rdma_cm_id);
  return id;
}

/** The same of a channel. */
export function checkedChannel(channel: rdma_event_channel): rdma_event_channel {
  checkKind('channel', channel, rdma_event_channel);
  return channel;
}

/** From an id of rdmacm to the struct before it. */
export const structOfId = (id: CmId): rdma_cm_id | undefined => ids.get(id);
