/** The options of the calls of this package, by name and type. */
import { LINK_KINDS } from '@node-roce/link';
import {
  CONGESTION_DEFAULTS,
  CONTROLLERS,
  DEVICE_LIMITS,
  EXPERIMENTAL,
  invalid,
  KEEP_EARLY,
  QP_ATTRIBUTE_NAMES,
} from '@node-roce/transport';
import {
  ANY,
  BIGINT,
  BOOLEAN,
  checkArgument,
  checkOptions,
  described,
  either,
  INTEGER,
  LIST,
  listOf,
  NUMBER,
  nearest,
  OBJECT,
  type OptionHints,
  type OptionType,
  type OptionTypes,
  oneOf,
  SIGNAL,
  STRING,
  within,
} from './options.ts';

const all = (names: readonly string[], type: OptionTypes[string]): OptionTypes =>
  Object.fromEntries(names.map((name) => [name, type]));

const ACCESS = all(
  [
    'localWrite',
    'remoteWrite',
    'remoteRead',
    'remoteAtomic',
    'mwBind',
    'zeroBased',
    'flushGlobal',
    'flushPersistent',
  ],
  BOOLEAN,
);
const CAP = all(['maxSendWr', 'maxRecvWr', 'maxSendSge', 'maxRecvSge', 'maxInlineData'], INTEGER);
const FAULTS: OptionTypes = {
  ...all(['loss', 'duplicate', 'corrupt', 'reorder', 'reorderBy', 'rate', 'queue', 'seed'], NUMBER),
  burst: OBJECT,
  ...all(['delay', 'markAt'], either(NUMBER, OBJECT)),
  direction: oneOf('both', 'inbound', 'outbound'),
};

const RECOVERY: OptionTypes = {
  probes: BOOLEAN,
  selective: BOOLEAN,
  keepEarly: oneOf(...KEEP_EARLY),
};

/** The ranges are the engine's to check. */
const CONGESTION: OptionTypes = {
  ...all(Object.keys(CONGESTION_DEFAULTS), NUMBER),
  controller: oneOf(...CONTROLLERS),
  notify: BOOLEAN,
};

/** A UDP port. */
const PORT: OptionType = {
  expected: 'a whole number of 1 … 65535',
  is: (value) => INTEGER.is(value) && (value as number) >= 1 && (value as number) <= 65_535,
};

/** A link on the machine's interfaces. */
export const LINK_KIND = oneOf(...LINK_KINDS);

const OPEN: OptionTypes = {
  address: either(STRING, LIST),
  ...all(['interface', 'trace'], STRING),
  port: PORT,
  engine: oneOf('inline', 'worker'),
  link: either(LINK_KIND, OBJECT),
  xdpMode: oneOf('auto', 'any', 'zero-copy', 'native', 'generic'),
  credits: BOOLEAN,
  experimental: listOf(...EXPERIMENTAL),
  ...all(['recovery', 'congestion'], OBJECT),
  limits: OBJECT,
  signal: SIGNAL,
  faults: OBJECT,
  receiveBuffer: INTEGER,
  zeroChecksum: BOOLEAN,
  ...all(['offload', 'shared'], BOOLEAN),
  flushIcrc: oneOf('both', 'rxe', 'strict'),
};

/** The engine keeps to what it was made for: limits may be smaller. */
const LIMITS: OptionTypes = Object.fromEntries(
  Object.entries(DEVICE_LIMITS).map(([name, most]) => [name, within(0, most)]),
);

/** `openDevice`. */
export function checkOpenOptions(options: {
  limits?: object;
  faults?: object;
  recovery?: object;
  congestion?: object;
}): void {
  checkOptions('', options, OPEN, {
    nested: {
      limits: Object.keys(DEVICE_LIMITS),
      faults: Object.keys(FAULTS),
      recovery: Object.keys(RECOVERY),
      congestion: Object.keys(CONGESTION),
    },
  });
  if (options.limits !== undefined) checkOptions('limits', options.limits, LIMITS);
  if (options.faults !== undefined) checkOptions('faults', options.faults, FAULTS);
  if (options.recovery !== undefined) checkOptions('recovery', options.recovery, RECOVERY);
  if (options.congestion !== undefined) checkOptions('congestion', options.congestion, CONGESTION);
}

/** `access`: bits, or flags by name. */
export function checkAccess(attribute: string, access: unknown): void {
  if (access !== undefined && !INTEGER.is(access)) checkOptions(attribute, access, ACCESS);
}

const inAccess: OptionHints = { nested: { access: Object.keys(ACCESS) } };

/** `registerMr` and `reregister`. */
export function checkRegisterOptions(options: { access?: unknown }, more: OptionTypes = {}): void {
  checkOptions('', options, { access: ANY, iova: BIGINT, ...more }, inAccess);
  checkAccess('access', options.access);
}

/** `createQp`; the queues are checked against the device's own. */
const QUEUE_PAIR: OptionTypes = {
  type: oneOf('RC', 'UC', 'UD', 'GSI', 'RAW_PACKET', 'XRC_INI'),
  ...all(['sendCq', 'recvCq', 'srq', 'context'], ANY),
  cap: OBJECT,
  sqSigAll: BOOLEAN,
  ...all(['recovery', 'congestion'], OBJECT),
};
const QUEUE_PAIR_HINTS = {
  nested: {
    cap: Object.keys(CAP),
    recovery: Object.keys(RECOVERY),
    congestion: Object.keys(CONGESTION),
  },
  aliases: { cq: 'sendCq', qpType: 'type' },
};
export function checkQueuePairInit(init: { cap?: object; recovery?: object; congestion?: object }): void {
  checkOptions('', init, QUEUE_PAIR, QUEUE_PAIR_HINTS);
  if (init.cap !== undefined) checkOptions('cap', init.cap, CAP);
  if (init.recovery !== undefined) checkOptions('recovery', init.recovery, RECOVERY);
  if (init.congestion !== undefined) checkOptions('congestion', init.congestion, CONGESTION);
}

const SRQ: OptionTypes = {
  ...all(['maxWr', 'maxSge', 'limit'], INTEGER),
  context: ANY,
  xrc: OBJECT,
  tags: OBJECT,
};
export function checkSrqInit(init: { xrc?: object; tags?: object }): void {
  checkOptions('', init, SRQ, { nested: { xrc: ['domain', 'cq'], tags: ['max', 'cq'] } });
  if (init.xrc !== undefined) checkOptions('xrc', init.xrc, all(['domain', 'cq'], OBJECT));
  if (init.tags !== undefined) checkOptions('tags', init.tags, { max: INTEGER, cq: OBJECT });
}

/** `openXrcDomain`. */
export const checkXrcDomainInit = (init: object): void =>
  checkOptions('', init, { name: STRING, ...all(['create', 'exclusive'], BOOLEAN) });

export const checkSrqChange = (change: object): void =>
  checkOptions('', change, all(['maxWr', 'limit'], INTEGER));

const ROUTE = all(['sgidIndex', 'flowLabel', 'trafficClass', 'hopLimit'], NUMBER);
const AH: OptionTypes = {
  grh: OBJECT,
  isGlobal: BOOLEAN,
  ...all(['dlid', 'sl', 'srcPathBits', 'staticRate', 'portNum'], NUMBER),
};
const ADDRESS: OptionTypes = {
  gid: ANY,
  ...all(['gidIndex', 'flowLabel', 'trafficClass', 'hopLimit', 'sl'], INTEGER),
};

/** `createAh`, from an address or with every attribute. The ranges are the engine's to check. */
export function checkAddressInit(init: object): void {
  if (typeof init === 'object' && init !== null && 'grh' in init) checkAhAttr('', init);
  else checkOptions('', init, ADDRESS, { aliases: { address: 'gid', dgid: 'gid' } });
}

function checkAhAttr(attribute: string, attr: { grh?: unknown }): void {
  checkOptions(attribute, attr, AH, { nested: { grh: [...Object.keys(ROUTE), 'dgid'] } });
  const path = attribute === '' ? 'grh' : `${attribute}.grh`;
  checkOptions(path, attr.grh, { ...ROUTE, dgid: OBJECT });
}

const QP_ATTRIBUTES: OptionTypes = all(QP_ATTRIBUTE_NAMES, ANY);

/** `modify`: the names. Which of them a step takes, and their values, are the engine's to check. */
export function checkQpAttr(attr: { ahAttr?: object; cap?: object }): void {
  checkOptions('', attr, QP_ATTRIBUTES, {
    nested: {
      ahAttr: Object.keys(AH).filter((name) => name !== 'portNum'),
      'ahAttr.grh': [...Object.keys(ROUTE), 'dgid'],
    },
    aliases: { state: 'qpState', access: 'qpAccessFlags', psn: 'sqPsn' },
  });
  if (attr.ahAttr !== undefined) checkAhAttr('ahAttr', attr.ahAttr);
  if (attr.cap !== undefined) checkOptions('cap', attr.cap, CAP);
}

const CONNECT: OptionTypes = {
  ackTimeoutMs: NUMBER,
  rnrTimerMs: NUMBER,
  ...all(
    [
      'pathMtu',
      'gidIndex',
      'timeout',
      'retryCnt',
      'rnrRetry',
      'minRnrTimer',
      'maxRdAtomic',
      'maxDestRdAtomic',
      'access',
      'flowLabel',
      'trafficClass',
      'hopLimit',
      'sl',
    ],
    INTEGER,
  ),
};
/** `connect`: the second argument. */
export const checkConnectOptions = (options: object): void => checkOptions('', options, CONNECT);

/** The peer's data: more members may be there, of a later version or of the program. */
export function checkConnectionData(remote: unknown): void {
  if (!OBJECT.is(remote))
    checkOptions('remote', remote, all(['qpNum', 'psn', 'gid', 'mtu', 'selective'], ANY));
  const { qpNum, psn, gid, mtu, selective } = remote as Record<string, unknown>;
  checkOptions(
    'remote',
    { qpNum, psn, gid, mtu, selective },
    { qpNum: INTEGER, psn: INTEGER, gid: STRING, mtu: INTEGER, selective: BOOLEAN },
  );
}

/** Calls that take a signal, and their other options. */
export const checkWaitOptions = (options: object, more: OptionTypes = {}): void =>
  checkOptions('', options, { signal: SIGNAL, ...more });

/** Calls with a few options of their own. */
export const checkCall = (options: object, types: OptionTypes, attribute = ''): void =>
  checkOptions(attribute, options, types);

export const RANGE: OptionTypes = { mr: OBJECT, offset: INTEGER, length: INTEGER, access: ANY };
export const BIND: OptionTypes = { ...RANGE, mw: OBJECT, rkey: INTEGER };

const TAG_OP: OptionTypes = {
  opcode: oneOf('TAG_ADD', 'TAG_DEL', 'TAG_SYNC'),
  wrId: ANY,
  signaled: BOOLEAN,
  handled: INTEGER,
};
const TAG_ADD: OptionTypes = { ...TAG_OP, recvWrId: ANY, tag: BIGINT, mask: BIGINT, sgList: LIST };
/** The members of an operation on a list of tags, by its opcode. */
export function checkTagOp(op: { opcode: string }): void {
  const isDelete = op?.opcode === 'TAG_DEL';
  checkOptions(
    '',
    op,
    op?.opcode === 'TAG_ADD' ? TAG_ADD : isDelete ? { ...TAG_OP, handle: INTEGER } : TAG_OP,
  );
}

const QP_ATTRIBUTE_SET: ReadonlySet<string> = new Set(QP_ATTRIBUTE_NAMES);

/** `qp.query`: names of attributes. */
export function checkQueryMask(mask: readonly string[]): void {
  if (!Array.isArray(mask)) throw invalid('mask', described(mask), 'a list of names of attributes');
  for (const name of mask) {
    checkArgument('mask', name, STRING);
    if (!QP_ATTRIBUTE_SET.has(name))
      throw invalid('mask', `${name} is not an attribute of a queue pair`, nearest(name, QP_ATTRIBUTE_NAMES));
  }
}
