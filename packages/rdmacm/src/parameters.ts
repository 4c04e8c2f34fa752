/** Parameters of connect, accept and listen, and their checks. */
import type { Timing } from '@node-roce/cm';
import { type Device, type DeviceLimits, RoceError } from '@node-roce/verbs-api';
import { ackTimeoutCodeFor, rnrTimerCodeFor } from '@node-roce/wire';
import type { DeviceOptions } from './devices.ts';
import { invalid } from './errors.ts';
import type { IdEventChannel } from './events.ts';
import { checkParameterNames } from './options.ts';

/** RC connections live in TCP, datagram services in UDP, as in Linux; IPOIB and IB are more ports of the same kinds. */
export type PortSpaceName = 'TCP' | 'UDP' | 'IPOIB' | 'IB';

/** Parameters of both sides of a connection (`struct rdma_conn_param`). */
export interface ConnectionParameters {
  /**
   * For the peer's program; the wire pads it with zeros, so it has to know its own length. 56 bytes to connect, 196 to
   * accept; to a datagram service 180, from it 136.
   */
  privateData?: Uint8Array;
  /**
   * READs and atomics that this side serves at a time, 0 … `maxQpRdAtom` of the device (128 unless its `limits` are smaller). Default 16,
   * of an accepting side what the peer asks for, and no more than the device has.
   */
  responderResources?: number;
  /**
   * READs and atomics that this side has out at a time, 0 … `maxQpInitRdAtom` of the device. Default 16, of an accepting side what the
   * peer serves, and no more than the device has.
   */
  initiatorDepth?: number;
  /** Retries of a request without ACK, 0 … 7; for both sides. Default 7. */
  retryCount?: number;
  /** Retries of a request that found no receive here, 0 … 7; 7 is for ever. Default 7. */
  rnrRetryCount?: number;
  /**
   * End-to-end flow control: ACKs carry the number of posted receives, and senders wait for receives. On where both sides ask for
   * it. Default: as the device was opened (`credits`); Linux's programs do not ask.
   */
  flowControl?: boolean;
}

/** Options of an id. */
export interface IdOptions {
  /** The device; without one, that of the local address is opened and shared. */
  device?: Device;
  /**
   * How such a device is opened. Ids of one address and UDP port (`port`) share it: EINVAL for an option that differs from what it was
   * opened with; options that are not given are those of the first. Not with `device`.
   */
  deviceOptions?: DeviceOptions;
  /** Default TCP. */
  portSpace?: PortSpaceName;
  /**
   * XRC, on devices with `experimental: ['xrc']`: connecting makes an initiator (XRC_INI), and listening takes requests of initiators alone,
   * which are accepted with a target of a domain (`createTarget`). Default RC, in the port spaces TCP and IB.
   */
  transport?: 'RC' | 'XRC';
  /** Receives its events, in addition to the promises of its calls. */
  // biome-ignore lint/suspicious/noExplicitAny: an `EventChannel<CmId>`, whose module would import this one.
  channel?: IdEventChannel<any>;
  /** DSCP << 2 | ECN (RDMA_OPTION_ID_TOS). Default 0. */
  trafficClass?: number;
  /**
   * Local ACK timeout of the queue pair, code (RDMA_OPTION_ID_ACK_TIMEOUT). Default: from the packet lifetime, 17 (0.54 s); of an
   * accepting side, that of the request, 21 (8.6 s) at most. 0 is for ever.
   */
  ackTimeout?: number;
  /** The same in milliseconds, in place of `ackTimeout`: the next longer code holds. A request is retried after twice that time. */
  ackTimeoutMs?: number;
  /** RNR timer of the queue pair, code (rdma_set_min_rnr_timer). Default 12 (0.64 ms). */
  minRnrTimer?: number;
  /** The same in milliseconds, in place of `minRnrTimer`: the next longer code holds, 491.52 ms and 655.36 ms at most. */
  rnrTimerMs?: number;
  /** Intervals and retries of the connection manager's messages. Defaults are Linux's. */
  timing?: Timing;
  /** Comes back as `context`. */
  context?: unknown;
}

/** Private data that the messages have room for, bytes. */
export const PRIVATE_DATA = { connect: 56, accept: 196, reject: 148, resolve: 180, answer: 136 } as const;

/** Options with the codes of times that are given in milliseconds. */
export function withCodes(options: IdOptions): IdOptions {
  const { ackTimeoutMs, rnrTimerMs, ...codes } = options;
  return {
    ...codes,
    ...(ackTimeoutMs === undefined ? {} : { ackTimeout: ackTimeoutCodeFor(ackTimeoutMs * 1000) }),
    ...(rnrTimerMs === undefined ? {} : { minRnrTimer: rnrTimerCodeFor(rnrTimerMs * 1000) }),
  };
}

/** Checks the room for private data. */
export function checkPrivateData(data: Uint8Array | undefined, room: number): void {
  if (data === undefined) return;
  checkParameterNames({ privateData: data });
  if (data.length > room)
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `privateData: ${data.length} bytes`, {
      errno: 'EINVAL',
      attribute: 'privateData',
      expected: `${room} bytes at most`,
    });
}

/** @throws EINVAL for a name that does not exist, or a value out of range */
export function checkParameters(parameters: ConnectionParameters, room: number): void {
  checkParameterNames(parameters);
  checkPrivateData(parameters.privateData, room);
}

/** @throws EINVAL for more READs and atomics than the device has (librdmacm's `ucma_valid_param`) */
export function checkDepths(
  { responderResources = 0, initiatorDepth = 0 }: ConnectionParameters,
  { maxQpRdAtom, maxQpInitRdAtom }: DeviceLimits,
): void {
  if (responderResources > maxQpRdAtom)
    throw invalid(
      'responderResources',
      `${responderResources}`,
      `0 … ${maxQpRdAtom}, maxQpRdAtom of the device`,
    );
  if (initiatorDepth > maxQpInitRdAtom)
    throw invalid(
      'initiatorDepth',
      `${initiatorDepth}`,
      `0 … ${maxQpInitRdAtom}, maxQpInitRdAtom of the device`,
    );
}
