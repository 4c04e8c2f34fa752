/** A simulated adapter as a device under test: any `SimDevice`, or one `Endpoint` a connection. */
import {
  type ConnectionOptions,
  type Endpoint,
  type EndpointFactory,
  ModelAccess,
  type SimDevice,
  type SimWindow,
} from '@node-roce/sim';
import { gidFromText } from '@node-roce/wire';
import {
  type ConnectionSpec,
  type Device,
  type DeviceConnection,
  type Right,
  Untestable,
  type Window,
  type WindowSpec,
} from '../device.ts';
import type { Need } from '../needs.ts';
import { DEVICE, type VirtualLine } from './line.ts';
import { SimConnection } from './sim-connection.ts';

const RIGHTS: Readonly<Record<Right, number>> = {
  write: ModelAccess.REMOTE_WRITE,
  read: ModelAccess.REMOTE_READ,
  atomic: ModelAccess.REMOTE_ATOMIC,
  flush: ModelAccess.FLUSH_GLOBAL,
};

const bitsOf = (rights: readonly Right[]): number => rights.reduce((bits, right) => bits | RIGHTS[right], 0);

const bitsOfRegion = ({ windows }: ConnectionSpec, rights: readonly Right[]): number =>
  ModelAccess.LOCAL_WRITE | (windows ? ModelAccess.MW_BIND : 0) | bitsOf(rights);

const SERVICES = {
  rc: 'RC',
  uc: 'UC',
  ud: 'UD',
  'xrc-target': 'XRC_TGT',
  'xrc-initiator': 'XRC_INI',
} as const;

const BOTH: readonly Need[] = [
  'rc',
  'write',
  'read',
  'atomic',
  'atomicWrite',
  'receives',
  'post',
  'completions',
  'memory',
  'state',
  'attributes',
  'bounds',
  'fail',
  'fence',
  'placement',
];

/** The first bytes of a region: not zeros, so that a rule sees what is written. */
function fill(bytes: Uint8Array): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = i * 7 + (i >> 8);
}

function attributesOf(spec: ConnectionSpec): ConnectionOptions {
  const { pathMtu, timeout, retryCnt, rnrRetry, minRnrTimer, maxRdAtomic, maxDestRdAtomic } = spec;
  const attributes = { pathMtu, timeout, retryCnt, rnrRetry, minRnrTimer, maxRdAtomic, maxDestRdAtomic };
  return { ...attributes, qpAccessFlags: bitsOf(spec.access), credits: true };
}

const peerOf = ({ address, qpn, psn, qkey }: ConnectionSpec) => ({
  gid: gidFromText(address),
  qpn,
  psn,
  rkey: 0,
  base: 0n,
  qkey,
});

/** An adapter that counts. */
interface Counting {
  counters(): Readonly<Record<string, number>>;
}

/** An adapter whose program connects to an address. */
interface Calling {
  call(gid: Uint8Array): void;
}

const isCounting = (adapter: object): adapter is Counting => 'counters' in adapter;
const isCalling = (adapter: object): adapter is Calling => 'call' in adapter;

/**
 * Queue pairs and regions of an adapter that has everything.
 * @param serviceId at which it accepts connections, if it does
 */
export function adapterDevice(
  line: VirtualLine,
  adapter: SimDevice,
  name: string,
  serviceId?: bigint,
): Device {
  line.add(adapter);
  const connect = async (spec: ConnectionSpec): Promise<DeviceConnection> => {
    const bytes = new Uint8Array(spec.size);
    fill(bytes);
    const region = adapter.register(bytes, bitsOfRegion(spec, spec.regionAccess));
    const service = SERVICES[spec.service];
    const srq = spec.srq === 'own' ? adapter.createSrq() : (spec.srq as SimConnection | undefined)?.srq;
    const qp = adapter.createQp({ service, psn: spec.devicePsn, qkey: spec.qkey, srq });
    if (spec.state !== 'INIT') qp.connect(peerOf(spec), attributesOf(spec));
    const xrc =
      service === 'XRC_TGT' ? ([adapter.createXrcSrq(), adapter.createXrcSrq()] as const) : undefined;
    const connection = new SimConnection(line, qp, region, true, spec, srq, xrc);
    connection.postFirstReceives();
    const windows = new Set<SimWindow>();
    let open = true;
    const destroyQp = async () => {
      if (open) adapter.destroyQp(qp);
      open = false;
    };
    const deregister = async () => adapter.deregister(connection.own);
    return Object.assign(connection, {
      destroyQp,
      deregister,
      async bindWindow(bind: WindowSpec): Promise<Window> {
        const window = adapter.allocWindow(bind.type);
        windows.add(window);
        // The program chooses the low 8 bits.
        const rkey = ((window.rkey & ~0xff) | ((window.rkey + 1) & 0xff)) >>> 0;
        connection.bind(bind, window, rkey, bitsOf(bind.access));
        return {
          rkey,
          free: async () => {
            if (windows.delete(window)) adapter.freeWindow(window);
          },
        };
      },
      async reregister(access: readonly Right[]): Promise<void> {
        await deregister();
        connection.moveTo(adapter.register(bytes, bitsOfRegion(spec, access)));
      },
      drain: async () => qp.drain(),
      resume: async () => qp.resume(),
      limitReceives: async (limit: number) => {
        adapter.pollEvents();
        srq?.setLimit(limit);
      },
      events: (ms: number) => connection.eventsOf(() => adapter.pollEvents(), ms),
      close: async () => {
        for (const window of windows) adapter.freeWindow(window);
        await destroyQp();
        await deregister();
      },
    });
  };
  const offers = new Set<Need>([
    ...BOTH,
    'uc',
    'ud',
    'srq',
    'regions',
    'flush',
    'xrc',
    'init',
    'destroy',
    'deregister',
    'windows',
    'reregister',
    'events',
    'drain',
  ]);
  const device: Device = { info: { name }, offers, connect };
  if (isCounting(adapter)) {
    offers.add('counters');
    device.counters = async () => adapter.counters();
  }
  if (isCalling(adapter)) {
    offers.add('caller');
    device.call = () => adapter.call(line.gid);
  }
  if (serviceId === undefined) return device;
  offers.add('listener');
  return { ...device, listener: { serviceId } };
}

/** A device that is known by its reliable connections only: a new `Endpoint` for each, all of its arena one region. */
export function endpointDevice(line: VirtualLine, make: EndpointFactory, name: string): Device {
  const connect = async (spec: ConnectionSpec): Promise<DeviceConnection> => {
    if (spec.service !== 'rc') throw new Untestable('an Endpoint is a reliable connection');
    const endpoint: Endpoint = make({
      gid: gidFromText(DEVICE.ip),
      psn: spec.devicePsn,
      arenaBytes: spec.size,
      seed: spec.qpn,
      credits: true,
    });
    fill(endpoint.arena);
    line.add(endpoint);
    endpoint.connect(peerOf(spec), attributesOf(spec));
    const { rkey, base } = endpoint.info;
    const region = { bytes: endpoint.arena as Uint8Array<ArrayBuffer>, rkey, base };
    const connection = new SimConnection(line, endpoint, region, false, spec);
    connection.postFirstReceives();
    return connection;
  };
  return { info: { name }, offers: new Set<Need>(BOTH), connect };
}
