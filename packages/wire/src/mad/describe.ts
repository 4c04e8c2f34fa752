/** The connection manager's messages as text: names, a line, and all fields. */
import { toHex } from '../bytes.ts';
import { formatIpAddress } from '../gid.ts';
import { cmFieldsAt, cmNameAt } from './cm.ts';
import { CM_LAYOUTS, type CmName } from './cm-layouts.ts';
import { CmRejReason, CmSidrStatus } from './cm-values.ts';
import type { Field, Layout } from './field.ts';
import { PortSpace, parseIpCmServiceId } from './ip-cm.ts';
import { MAD_HEADER_BYTES } from './mad.ts';

/** Names of messages as Wireshark has them. */
export const CM_TITLES: Readonly<Record<CmName, string>> = {
  REQ: 'ConnectRequest',
  MRA: 'MsgRcptAck',
  REJ: 'ConnectReject',
  REP: 'ConnectReply',
  RTU: 'ReadyToUse',
  DREQ: 'DisconnectRequest',
  DREP: 'DisconnectReply',
  SIDR_REQ: 'ServiceIDResolutionRequest',
  SIDR_REP: 'ServiceIDResolutionResponse',
  LAP: 'LoadAlternatePath',
  APR: 'AlternatePathResponse',
};

const wordsOf = (values: Readonly<Record<string, number>>): ReadonlyMap<number, string> =>
  new Map(
    Object.entries(values).map(([name, value]) => [
      value,
      name
        .toLowerCase()
        .replaceAll('_', ' ')
        .replace(/\b(qp|eec|id|gid|lid|sl|mtu|rnr|cm)\b/g, (word) => word.toUpperCase()),
    ]),
  );

const reasons = wordsOf(CmRejReason);
const statuses = wordsOf(CmSidrStatus);

/** `invalid service ID (8)`. */
export const rejectReason = (reason: number): string => `${reasons.get(reason) ?? 'reserved'} (${reason})`;
/** `no QP (3)`. */
export const sidrStatus = (status: number): string => `${statuses.get(status) ?? 'reserved'} (${status})`;

const spaces = new Map<number, string>(Object.entries(PortSpace).map(([name, value]) => [value, name]));

/** `TCP port 7174` for a service of the RDMA CM, else the number: `0x00000000deadbeef`. */
export function serviceName(serviceId: bigint): string {
  const service = parseIpCmServiceId(serviceId);
  const space = service && spaces.get(service.portSpace);
  return space === undefined
    ? `0x${serviceId.toString(16).padStart(16, '0')}`
    : `${space} port ${service!.port}`;
}

const hex = (value: number): string => `0x${value.toString(16)}`;

/**
 * The message at `o` in a line, or undefined if there is none: `CM ConnectRequest ID=0x1a2b TCP port 7174 QP=0x11 PSN=7 …`.
 * @param end of what there is of it
 */
export function describeCm(b: Uint8Array, o: number, end: number): string | undefined {
  const name = o + MAD_HEADER_BYTES <= end ? cmNameAt(b, o) : undefined;
  if (name === undefined) return undefined;
  const details = endOf(name) + MAD_HEADER_BYTES + o <= end ? detailsOf(name, b, o) : ['cut'];
  return [`CM ${CM_TITLES[name]}`, ...details].join(' ');
}

/** Bytes of a message up to its private data. */
const endOf = (name: CmName): number =>
  Math.max(
    ...Object.entries(CM_LAYOUTS[name] as Layout).map(([field, { at, bytes }]) =>
      field === 'privateData' || field === 'additionalInfo' ? 0 : at + bytes,
    ),
  );

function detailsOf(name: CmName, b: Uint8Array, o: number): string[] {
  const read = <N extends CmName>(of: N) => cmFieldsAt(of, b, o);
  switch (name) {
    case 'REQ': {
      const req = read('REQ');
      return [
        `ID=${hex(req.localCommId)} ${serviceName(req.serviceId)} QP=${hex(req.localQpn)} PSN=${req.startingPsn}`,
        `timeout=${req.primaryAckTimeout} retries=${req.retryCount} rnr=${req.rnrRetryCount}`,
        `mtu=${req.pathMtu >= 1 && req.pathMtu <= 5 ? 128 << req.pathMtu : '?'}`,
        `resources=${req.responderResources} depth=${req.initiatorDepth}`,
      ];
    }
    case 'REP': {
      const rep = read('REP');
      return [
        `ID=${hex(rep.localCommId)} to ${hex(rep.remoteCommId)} QP=${hex(rep.localQpn)} PSN=${rep.startingPsn}`,
        `rnr=${rep.rnrRetryCount} resources=${rep.responderResources} depth=${rep.initiatorDepth}`,
      ];
    }
    case 'REJ': {
      const rej = read('REJ');
      return [`ID=${hex(rej.localCommId)} to ${hex(rej.remoteCommId)} ${rejectReason(rej.reason)}`];
    }
    case 'SIDR_REQ': {
      const { requestId, serviceId } = read('SIDR_REQ');
      return [`ID=${hex(requestId)} ${serviceName(serviceId)}`];
    }
    case 'SIDR_REP': {
      const { requestId, status, qpn, qkey } = read('SIDR_REP');
      return [`ID=${hex(requestId)} ${sidrStatus(status)} QP=${hex(qpn)} QKey=${hex(qkey)}`];
    }
    default: {
      const { localCommId, remoteCommId } = read(name as 'RTU');
      return [`ID=${hex(localCommId)} to ${hex(remoteCommId)}`];
    }
  }
}

/** A field of a message as text. */
export interface CmFieldText {
  name: string;
  text: string;
  /** Of its first byte, in `b`. */
  offset: number;
  bytes: Uint8Array;
}

/** Every field of the message at `o` whose bytes are there; none if it is no message of the connection manager. */
export function cmFieldTexts(b: Uint8Array, o: number, end: number): CmFieldText[] {
  const name = o + MAD_HEADER_BYTES <= end ? cmNameAt(b, o) : undefined;
  if (name === undefined) return [];
  const texts: CmFieldText[] = [];
  for (const [field, layout] of Object.entries(CM_LAYOUTS[name] as Layout)) {
    const offset = o + MAD_HEADER_BYTES + layout.at;
    if (offset + layout.bytes > end) continue;
    const text = textOf(field, layout, layout.get(b, o + MAD_HEADER_BYTES));
    texts.push({ name: field, text, offset, bytes: b.subarray(offset, offset + layout.bytes) });
  }
  return texts;
}

function textOf(name: string, { kind }: Field<unknown>, value: unknown): string {
  if (kind === 'gid') return formatIpAddress(value as Uint8Array);
  if (kind === 'data')
    return (value as Uint8Array).some((byte) => byte) ? toHex(value as Uint8Array) : 'zero';
  if (typeof value === 'bigint')
    return name === 'serviceId' ? serviceName(value) : `0x${value.toString(16).padStart(16, '0')}`;
  if (name === 'reason') return rejectReason(value as number);
  return /id$|qpn|key|eecn/i.test(name) ? hex(value as number) : String(value);
}
