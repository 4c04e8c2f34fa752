/** Errors for a peer's answer, or its silence, with the remedy. */
import { type AlternatePath, aprStatusName, rejectReasonName, sidrStatusName } from '@node-roce/cm';
import { RoceError } from '@node-roce/verbs-api';
import { CmAprStatus, CmRejReason, CmSidrStatus, gidToIpText } from '@node-roce/wire';
import type { SocketAddress } from './addresses.ts';

/** The peer refused: with the reason, and its program's private data. */
export class RefusedError extends RoceError {
  /** Name of the reason (`CmRejReason`, or `CmSidrStatus` for a datagram service). */
  readonly reason: string;
  /** Its number: `status` of Linux's RDMA_CM_EVENT_REJECTED. */
  readonly status: number;
  /** Private data of the peer's program: 148 bytes (136 of a datagram service), zeros behind what it wrote. */
  readonly privateData: Uint8Array;

  constructor(message: string, reason: string, status: number, privateData: Uint8Array) {
    super('ERR_ROCE_CM_REFUSED', message, { errno: 'ECONNREFUSED', attribute: reason });
    this.reason = reason;
    this.status = status;
    this.privateData = privateData;
  }
}

const at = ({ address, port }: SocketAddress) => `port ${port} of ${address}`;

/** As `connect` takes it. */
export const hostAndPort = ({ address, port }: SocketAddress): string =>
  address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;

export const isStreamError = (peer: string): RoceError =>
  new RoceError('ERR_ROCE_CM_STATE', `the connection with ${peer} is a stream`, {
    errno: 'EINVAL',
    expected: 'reads and writes of the stream',
  });

/** A REJ as an error. */
export function rejectedError(
  to: SocketAddress,
  reject: {
    reason: number;
    privateData: Uint8Array;
    additionalInfo: Uint8Array;
    additionalInfoLength: number;
  },
): RefusedError {
  const reason = rejectReasonName(reject.reason);
  return new RefusedError(rejection(to, reject, reason), reason, reject.reason, reject.privateData);
}

function rejection(
  to: SocketAddress,
  reject: { reason: number; additionalInfo: Uint8Array; additionalInfoLength: number },
  reason: string,
): string {
  switch (reject.reason) {
    case CmRejReason.INVALID_SERVICE_ID:
      return `no program listens at ${at(to)}: start the server first`;
    case CmRejReason.CONSUMER_DEFINED:
      return `the program at ${at(to)} refuses the connection; \`privateData\` has its answer`;
    case CmRejReason.INVALID_GID: {
      const own =
        reject.additionalInfoLength === 16
          ? `; the adapter that answers has ${gidToIpText(reject.additionalInfo.subarray(0, 16))}`
          : '';
      return `an address is translated on the way to ${to.address}${own}: RDMA does not pass address translation; use addresses that both ends have on their interfaces`;
    }
    case CmRejReason.STALE_CONNECTION:
      return `${to.address} still knows a connection of this queue pair: connect again with a new one`;
    case CmRejReason.TIMEOUT:
      return `the program at ${at(to)} gave up waiting`;
    case CmRejReason.INVALID_MTU:
      return `the path MTU of the request is larger than that of ${to.address}: give both interfaces the same MTU`;
    default:
      return `${to.address} refuses the connection: ${reason}`;
  }
}

/** A SIDR_REP with another status than SUCCESS as an error. */
export function unresolvedError(to: SocketAddress, status: number, privateData: Uint8Array): RefusedError {
  const reason = sidrStatusName(status);
  const message =
    status === CmSidrStatus.UNSUPPORTED
      ? `no program listens at ${at(to)}: start the server first`
      : `the datagram service at ${at(to)} refuses: ${reason}`;
  return new RefusedError(message, reason, status, privateData);
}

/** An APR with another status than SUCCESS, or none at all, as an error. */
export function refusedPathError({ route }: AlternatePath, status: number | undefined): RoceError {
  const to = gidToIpText(route.gid);
  if (status === undefined)
    return new RoceError('ERR_ROCE_CM_UNREACHABLE', `the peer does not answer the path to ${to}`, {
      errno: 'ETIMEDOUT',
      attribute: 'address',
      expected: 'a peer that uses node-roce: Linux drops these messages',
    });
  const reason = aprStatusName(status);
  const hint = status === CmAprStatus.UNSUPPORTED ? ": it wants `experimental: ['apm']`, too" : '';
  return new RefusedError(
    `the peer refuses the path to ${to}: ${reason}${hint}`,
    reason,
    status,
    new Uint8Array(0),
  );
}

/** `udpPort`: of the device, and so of the peer's. */
export const unreachableError = (to: SocketAddress, udpPort: number): RoceError =>
  new RoceError(
    'ERR_ROCE_CM_UNREACHABLE',
    `no answer from ${to.address}: nobody there, a firewall on UDP ${udpPort}, no RoCE on its interface, or a full backlog at port ${to.port}`,
    {
      errno: 'ETIMEDOUT',
      attribute: 'host',
      expected: `a program that accepts connections there; \`roce doctor ${to.address}\` checks the path, and an adapter answers at once, even if nobody listens at the port`,
    },
  );

/** The limit of `connect` is over. */
export const connectTimeoutError = (to: SocketAddress, milliseconds: number): RoceError =>
  new RoceError('ERR_ROCE_CM_UNREACHABLE', `no answer from ${hostAndPort(to)} within ${milliseconds} ms`, {
    errno: 'ETIMEDOUT',
    attribute: 'connectTimeout',
    expected: `a program that accepts connections there; \`roce doctor ${to.address}\` checks the path`,
  });

export const closedError = (message: string): RoceError =>
  new RoceError('ERR_ROCE_CLOSED', message, { errno: 'ECANCELED' });

/** The error of a DEVICE_REMOVAL: why the device has ended. */
export const removalError = (reason: unknown): RoceError =>
  reason instanceof RoceError
    ? reason
    : new RoceError('ERR_ROCE_CLOSED', 'the device is closed', { errno: 'ECANCELED', cause: reason });

/** The error of a port for which another one may be drawn; that of a UDP port has the same code. */
export class PortTakenError extends RoceError {}

/** A port of the connection manager that a listener has, of this program or of another one at the address. */
export const portTaken = (place: SocketAddress, cause: unknown): RoceError =>
  new PortTakenError('ERR_ROCE_PORT_IN_USE', `${at(place)} has a listener`, {
    errno: 'EADDRINUSE',
    attribute: 'port',
    expected: 'another port, or 0 for one that is free',
    cause,
  });

/** A port that another id has, at this address or at all of them. */
export const portInUse = (place: SocketAddress): RoceError =>
  new RoceError('ERR_ROCE_PORT_IN_USE', `${at(place)} is in use by another id`, {
    errno: 'EADDRINUSE',
    attribute: 'port',
    expected: 'another port, or 0 for one that is free',
  });

/** The error of a value or an option that is not taken. */
export const invalid = (attribute: string, message: string, expected: string): RoceError =>
  new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `${attribute}: ${message}`, {
    errno: 'EINVAL',
    attribute,
    expected,
  });

export const foreignDomain = (attribute: 'pd' | 'domain'): RoceError =>
  invalid(
    attribute,
    'it is of another device',
    attribute === 'pd' ? 'a protection domain of id.device' : 'an XRC domain of id.device',
  );
