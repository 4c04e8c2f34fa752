/** ibv_modify_qp(3) and ibv_query_qp(3): checks against the transition table, then values. */
import { PATH_MTUS } from '@node-roce/wire';
import { checkAddressVector } from './addresses.ts';
import { Access, MIG_STATES, type MigState, QP_STATES, type QpState, type QpType } from './constants.ts';
import type { AhAttr, DeviceLimits, GidEntry, QpAttr, QpCap, QpQuery } from './control.ts';
import { invalid, RoceError } from './errors.ts';
import type { AlternatePath, QpAttributes } from './qp/attributes.ts';
import { ALT_PATH, type QpAttrName, statesFrom, transition, VALID_IN_STATE } from './transitions.ts';

export interface PortFacts {
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  readonly limits: DeviceLimits;
  /** Paths may migrate. */
  readonly migrates: boolean;
}

/** The alternate path, and the state of migration to it. */
const OF_MIGRATION: readonly QpAttrName[] = [...ALT_PATH, 'pathMigState'];

/** Why an attribute is refused for queue pairs of this type, in any step; undefined if it is offered. */
function notOffered(name: QpAttrName, type: QpType, migrates: boolean): string | undefined {
  if (name === 'rateLimit' && type === 'XRC_TGT') return 'XRC_TGT queue pairs send no requests';
  if (name === 'cap' && type === 'XRC_TGT') return 'XRC_TGT queue pairs have no queues';
  if (!migrates && OF_MIGRATION.includes(name))
    return "paths do not migrate (IBV_DEVICE_AUTO_PATH_MIG is clear): open the device with experimental: ['apm']";
  return undefined;
}

const REMOTE_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
const FLUSH_ACCESS = Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT;

type Check = (value: never, port: PortFacts) => string | undefined;

function range(low: number, high: number): Check {
  return (value: number) =>
    Number.isInteger(value) && value >= low && value <= high ? undefined : `${low} … ${high}`;
}

const bool: Check = (value: unknown) => (typeof value === 'boolean' ? undefined : 'true or false');
const any: Check = () => undefined;

/** The values that each attribute may have; a check returns the expected ones. */
const CHECKS: Record<QpAttrName, Check> = {
  qpState: (v: QpState) => (QP_STATES.includes(v) ? undefined : QP_STATES.join(', ')),
  curQpState: (v: QpState) => (QP_STATES.includes(v) ? undefined : QP_STATES.join(', ')),
  pathMtu: (v: number, { activeMtu }) => {
    const offered = PATH_MTUS.filter((mtu) => mtu <= activeMtu);
    return offered.includes(v as never)
      ? undefined
      : `one of ${offered.join(', ')}: the port's active MTU is ${activeMtu}`;
  },
  pathMigState: (v: MigState) => (MIG_STATES.includes(v) ? undefined : MIG_STATES.join(', ')),
  qkey: range(0, 0xffff_ffff),
  rqPsn: range(0, 0xff_ffff),
  sqPsn: range(0, 0xff_ffff),
  destQpNum: range(0, 0xff_ffff),
  qpAccessFlags: (v: number) =>
    Number.isInteger(v) && (v & ~(REMOTE_ACCESS | FLUSH_ACCESS | Access.LOCAL_WRITE)) === 0
      ? undefined
      : 'REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, FLUSH_GLOBAL and FLUSH_PERSISTENT bits',
  cap: any,
  ahAttr: any,
  altAhAttr: any,
  // One entry, the default P_Key: the table of a RoCE port has no other use.
  pkeyIndex: range(0, 0),
  altPkeyIndex: range(0, 0),
  enSqdAsyncNotify: bool,
  sqDraining: any,
  maxRdAtomic: (v: number, { limits }) => range(0, limits.maxQpInitRdAtom)(v as never, undefined as never),
  maxDestRdAtomic: (v: number, { limits }) => range(0, limits.maxQpRdAtom)(v as never, undefined as never),
  minRnrTimer: range(0, 31),
  portNum: range(1, 1),
  timeout: range(0, 31),
  retryCnt: range(0, 7),
  rnrRetry: range(0, 7),
  altPortNum: range(1, 1),
  altTimeout: range(0, 31),
  rateLimit: range(0, 0xffff_ffff),
};

/** Every attribute that a queue pair can have. */
export const QP_ATTRIBUTE_NAMES = Object.keys(CHECKS) as readonly QpAttrName[];

/**
 * Checks a modify call as a whole; nothing is changed unless all of it is right.
 *
 * @returns the state to go to
 */
export function checkModify(
  qp: { readonly type: QpType; readonly stateName: QpState },
  attr: QpAttr,
  port: PortFacts,
): QpState {
  const names = (Object.keys(attr) as QpAttrName[]).filter((name) => attr[name] !== undefined);
  for (const name of names) {
    if (!(name in CHECKS)) throw invalid(name, 'no such attribute of a queue pair');
  }
  for (const name of ['qpState', 'curQpState'] as const) {
    const expected = attr[name] === undefined ? undefined : CHECKS[name](attr[name] as never, port);
    if (expected) throw invalid(name, `${attr[name]} is not a state`, expected);
  }
  const from = qp.stateName;
  if (attr.curQpState !== undefined && attr.curQpState !== from) {
    throw invalid('curQpState', `the queue pair is in ${from}, not in ${attr.curQpState}`, from);
  }
  // Nothing to change: allowed in every state (ibv_modify_qp(3): "attr_mask is either 0 or …").
  if (names.length === 0) return from;
  const to = attr.qpState ?? from;
  const allowed = transition(qp.type, from, to);
  if (!allowed) {
    throw invalid(
      'qpState',
      `${named(qp.type)} cannot change from ${from} to ${to}`,
      statesFrom(qp.type, from).join(', '),
    );
  }
  for (const name of allowed.required) {
    if (attr[name] === undefined) {
      throw new RoceError('ERR_ROCE_MISSING_ATTRIBUTE', `${name}: required from ${from} to ${to}`, {
        errno: 'EINVAL',
        attribute: name,
        expected: allowed.required.join(', '),
      });
    }
  }
  for (const name of names) {
    if (name === 'qpState') continue;
    const why = notOffered(name, qp.type, port.migrates);
    if (why) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `${name}: ${why}`, {
        errno: 'EOPNOTSUPP',
        attribute: name,
      });
    }
    if (!allowed.required.includes(name) && !allowed.optional.includes(name)) {
      const offered = allowed.optional.filter((each) => !notOffered(each, qp.type, port.migrates));
      const may = [...allowed.required, ...offered].join(', ') || 'the state alone';
      throw invalid(name, `can't be changed from ${from} to ${to}`, may);
    }
    const expected = CHECKS[name](attr[name] as never, port);
    if (expected) throw invalid(name, `${String(attr[name])} can't be taken`, expected);
  }
  if (attr.ahAttr) checkAddressVector(attr.ahAttr, port.gids);
  if (attr.altAhAttr) checkAddressVector(attr.altAhAttr, port.gids, 'altAhAttr');
  const alternate = ALT_PATH.filter((name) => attr[name] !== undefined);
  if (alternate.length > 0 && alternate.length < ALT_PATH.length) {
    const missing = ALT_PATH.find((name) => attr[name] === undefined) as string;
    throw new RoceError('ERR_ROCE_MISSING_ATTRIBUTE', `${missing}: an alternate path is four attributes`, {
      errno: 'EINVAL',
      attribute: missing,
      expected: ALT_PATH.join(', '),
    });
  }
  return to;
}

/** A queue pair of a type, with its article, for messages. */
export function named(type: QpType): string {
  return `${/^[RX]/.test(type) ? 'an' : 'a'} ${type} queue pair`;
}

/** The plain attributes of a modify call, under the engine's names; those of the path, and PSNs, are not among them. */
export function plainAttributes(attr: QpAttr): Partial<QpAttributes> {
  const named: Record<string, unknown> = {
    pkeyIndex: attr.pkeyIndex,
    portNum: attr.portNum,
    access: attr.qpAccessFlags,
    qkey: attr.qkey,
    destQpn: attr.destQpNum,
    pathMtu: attr.pathMtu,
    timeout: attr.timeout,
    retryCnt: attr.retryCnt,
    rnrRetry: attr.rnrRetry,
    minRnrTimer: attr.minRnrTimer,
    maxRdAtomic: attr.maxRdAtomic,
    maxDestRdAtomic: attr.maxDestRdAtomic,
    rateLimit: attr.rateLimit,
    notifyDrained: attr.enSqdAsyncNotify,
  };
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined));
}

/** A queue pair, as far as a query shows it. */
export interface Queried {
  readonly type: QpType;
  readonly stateName: QpState;
  readonly attributes: QpAttributes;
  readonly migration: { readonly state: MigState } | undefined;
  readonly responder: { readonly expectedPsn: number };
  readonly requester: { readonly sendPsn: number; readonly drained: boolean };
  readonly capAsked: QpCap;
  readonly sqSigAll: boolean;
  readonly sendCq: { readonly handle: number };
  readonly recvCq: { readonly handle: number };
  readonly srq: { readonly handle: number } | undefined;
}

/** The attributes that are valid in the queue pair's state; `cap` and the init attributes always. */
export function queryAttributes(qp: Queried): QpQuery {
  const { attributes, migration } = qp;
  const { alternate } = attributes;
  const all: QpAttr = {
    pkeyIndex: attributes.pkeyIndex,
    portNum: attributes.portNum,
    qpAccessFlags: attributes.access,
    qkey: attributes.qkey,
    ahAttr: attributes.ah && copyOf(attributes.ah),
    pathMtu: attributes.pathMtu,
    destQpNum: attributes.destQpn,
    rqPsn: qp.responder.expectedPsn,
    sqPsn: qp.requester.sendPsn,
    timeout: attributes.timeout,
    retryCnt: attributes.retryCnt,
    rnrRetry: attributes.rnrRetry,
    minRnrTimer: attributes.minRnrTimer,
    maxRdAtomic: attributes.maxRdAtomic,
    maxDestRdAtomic: attributes.maxDestRdAtomic,
    rateLimit: attributes.rateLimit,
    sqDraining: !qp.requester.drained,
    ...(migration ? { pathMigState: migration.state } : {}),
    ...(alternate ? alternateAttributes(alternate) : {}),
  };
  const attr: QpAttr = { qpState: qp.stateName, curQpState: qp.stateName, cap: { ...qp.capAsked } };
  for (const name of VALID_IN_STATE[qp.type][qp.stateName]) {
    if (name in all) (attr as Record<string, unknown>)[name] = all[name];
  }
  return {
    attr,
    init: {
      type: qp.type,
      cap: { ...qp.capAsked },
      sqSigAll: qp.sqSigAll,
      sendCq: qp.sendCq.handle,
      recvCq: qp.recvCq.handle,
      ...(qp.srq ? { srq: qp.srq.handle } : {}),
    },
  };
}

function alternateAttributes({ ah, pkeyIndex, portNum, timeout }: AlternatePath): QpAttr {
  return { altAhAttr: copyOf(ah), altPkeyIndex: pkeyIndex, altPortNum: portNum, altTimeout: timeout };
}

function copyOf(ah: AhAttr): AhAttr {
  return { ...ah, grh: { ...ah.grh, dgid: ah.grh.dgid.slice() } };
}
