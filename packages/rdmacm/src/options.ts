/** The options of this package's calls, by name and type. */
import { Device, ProtectionDomain, XrcDomain } from '@node-roce/verbs-api';
import {
  ANY,
  BOOLEAN,
  BYTES,
  checkArgument,
  checkOptions,
  either,
  OBJECT,
  type OptionType,
  type OptionTypes,
  oneOf,
  SIGNAL,
  STRING,
  within,
} from '@node-roce/verbs-api/options';
import { LINK_KIND } from '@node-roce/verbs-api/parts';
import { isMulticast, parseIpAddress } from '@node-roce/wire';
import { gidOf } from './addresses.ts';
import { invalid } from './errors.ts';
import { IdEventChannel } from './events.ts';

const instance = (expected: string, kind: abstract new (...args: never[]) => object): OptionType => ({
  expected,
  is: (value) => value instanceof kind,
});
/** With a zone or without. */
export const ADDRESS: OptionType = {
  expected: 'a numeric IPv4 or IPv6 address',
  is: (value) => typeof value === 'string' && parseIpAddress(value.split('%')[0]) !== undefined,
};
const GROUP: OptionType = {
  expected: 'a multicast address',
  is: (value) => ADDRESS.is(value) && isMulticast(gidOf(value as string)),
};
const PORT = within(0, 65_535);
const CODE = within(0, 31);
/** As Node's timers take them. */
const MILLISECONDS = within(0, 2 ** 31 - 1);
/** A time that becomes a code. */
const POSITIVE: OptionType = {
  expected: 'milliseconds, more than 0',
  is: (value) => typeof value === 'number' && value > 0 && value <= 2 ** 31,
};

const ID: OptionTypes = {
  device: instance('a device (openDevice)', Device),
  deviceOptions: OBJECT,
  portSpace: oneOf('TCP', 'UDP', 'IPOIB', 'IB'),
  transport: oneOf('RC', 'XRC'),
  channel: instance('an EventChannel', IdEventChannel),
  trafficClass: within(0, 255),
  ackTimeout: CODE,
  ackTimeoutMs: POSITIVE,
  minRnrTimer: CODE,
  rnrTimerMs: POSITIVE,
  timing: OBJECT,
  context: ANY,
};
const TIMING: OptionTypes = {
  responseTimeout: CODE,
  maxRetries: within(0, 15),
  packetLifetime: CODE,
  serviceTimeout: CODE,
};
const PARAMETERS: OptionTypes = {
  privateData: BYTES,
  responderResources: within(0, 128),
  initiatorDepth: within(0, 128),
  retryCount: within(0, 7),
  rnrRetryCount: within(0, 7),
  flowControl: BOOLEAN,
};
const MESSAGES: OptionTypes = {
  maxMessage: within(1, 2 ** 31),
  slots: within(1, 16_384),
  keepAlive: MILLISECONDS,
  idleTimeout: MILLISECONDS,
  closeTimeout: MILLISECONDS,
};
const STREAM_OPTIONS: OptionTypes = {
  allowHalfOpen: BOOLEAN,
  readableHighWaterMark: within(1, 2 ** 31 - 1),
  writableHighWaterMark: within(1, 2 ** 31 - 1),
  signal: SIGNAL,
};
const ENTRIES = within(1, 2 ** 29);
const KEY: OptionType = {
  expected: 'a string or bytes, 65,535 bytes at most',
  is: (value) => either(STRING, BYTES).is(value) && Buffer.byteLength(value as string | Uint8Array) <= 65_535,
};
const WAIT: OptionTypes = { signal: SIGNAL };
const LISTEN: OptionTypes = { address: ADDRESS, port: PORT, backlog: within(1, 65_535) };
/** Messages need a connection. */
const STREAM: OptionTypes = { ...ID, portSpace: oneOf('TCP', 'IB'), transport: oneOf('RC') };

/** Near no right name, and common. */
const HINTS = { aliases: { host: 'address', retryCnt: 'retryCount', rnrRetry: 'rnrRetryCount' } };

/** Codes, and the same times in milliseconds. */
const TWICE = [
  ['ackTimeout', 'ackTimeoutMs'],
  ['minRnrTimer', 'rnrTimerMs'],
] as const;

function check(options: { timing?: unknown }, types: OptionTypes): void {
  checkOptions('', options, types, HINTS);
  const given = options as Record<string, unknown>;
  for (const [code, time] of TWICE)
    if (given[code] !== undefined && given[time] !== undefined)
      throw invalid(time, `given with ${code}`, `one of ${code} and ${time}`);
  if (options.timing !== undefined) checkOptions('timing', options.timing, TIMING);
}

/** The place of a device follows from the id's address, and its end from the ids: neither is an option. */
function checkDeviceOptions({ device, deviceOptions }: { device?: unknown; deviceOptions?: unknown }): void {
  if (deviceOptions === undefined) return;
  if (device !== undefined)
    throw invalid(
      'deviceOptions',
      'given with a device',
      'options of a device that is opened here, or a device',
    );
  for (const name of ['address', 'interface', 'signal'])
    if ((deviceOptions as Record<string, unknown>)[name] !== undefined)
      throw invalid(`deviceOptions.${name}`, 'is no option here', 'the local address of the id, or a device');
  const { link } = deviceOptions as { link?: unknown };
  if (link !== undefined) checkArgument('deviceOptions.link', link, LINK_KIND);
}

export function checkIdOptions(options: {
  device?: unknown;
  deviceOptions?: unknown;
  portSpace?: unknown;
  transport?: unknown;
  timing?: unknown;
}): void {
  check(options, ID);
  checkDeviceOptions(options);
  const { portSpace = 'TCP', transport = 'RC' } = options;
  if (transport === 'XRC') checkArgument('portSpace', portSpace, oneOf('TCP', 'IB'));
}
export const checkConnectOptions = (options: object): void =>
  check(options, {
    ...STREAM,
    ...PARAMETERS,
    ...MESSAGES,
    ...WAIT,
    source: ADDRESS,
    connectTimeout: MILLISECONDS,
  });
export const checkClientOptions = (options: object): void =>
  check(options, {
    ...{ ...STREAM, ...PARAMETERS, ...MESSAGES, source: ADDRESS, connectTimeout: MILLISECONDS },
    connections: within(1, 1024),
    requestTimeout: MILLISECONDS,
    backoff: within(1, 2 ** 31 - 1),
    maxBackoff: within(1, 2 ** 31 - 1),
  });
export function checkRequest(body: unknown, options: object): void {
  checkArgument('body', body, either(STRING, BYTES));
  checkOptions('', options, { timeout: MILLISECONDS, signal: SIGNAL });
}
export const checkGet = (options: object): void =>
  checkOptions('', options, { timeout: MILLISECONDS, signal: SIGNAL });
export const checkAnswerOptions = (options: object, table: abstract new (...args: never[]) => object): void =>
  checkOptions('', options, { concurrency: within(1, 65_536), table: instance('a Table', table) });
/** Lengths that a row has room for. */
export function checkTableOptions(options: object): void {
  checkOptions('', options, { entries: ENTRIES, entrySize: within(1, 2 ** 30) });
  checkArgument('entries', (options as { entries?: unknown }).entries, ENTRIES);
}
export function checkKey(key: unknown): void {
  checkArgument('key', key, KEY);
}
export const checkValue = (value: unknown): void => checkArgument('value', value, either(STRING, BYTES));
export const checkListenOptions = (options: object): void =>
  check(options, { ...STREAM, ...PARAMETERS, ...MESSAGES, ...WAIT, ...LISTEN });
export const checkParameterNames = (parameters: object): void => check(parameters, PARAMETERS);
export const checkStreamOptions = (options: object): void => checkOptions('', options, STREAM_OPTIONS);
export const checkWait = (options: object): void => checkOptions('', options, WAIT);

export const checkLength = (length: unknown, longest: number): void =>
  checkArgument('length', length, within(1, longest));

/** A port that has to be given. */
export function checkPort(port: unknown): void {
  checkArgument('port', port, PORT);
}

export function checkDestination(destination: object): void {
  checkOptions(
    '',
    destination,
    { host: STRING, port: PORT, source: ADDRESS, sourcePort: PORT },
    { aliases: { address: 'host' } },
  );
  const { host, port } = destination as Record<string, unknown>;
  checkArgument('host', host, STRING);
  checkPort(port);
}

export function checkPlace(place: object): void {
  checkOptions('', place, LISTEN, HINTS);
  checkPort((place as Record<string, unknown>).port);
}

export const checkAddress = (address: unknown): void => checkArgument('address', address, ADDRESS);
export function checkAlternate(place: object): void {
  checkOptions('', place, { address: ADDRESS, source: ADDRESS, ackTimeout: CODE });
  checkArgument('address', (place as Record<string, unknown>).address, ADDRESS);
}
export const checkGroup = (group: unknown): void => checkArgument('group', group, GROUP);
export const checkJoin = (options: object): void => checkOptions('', options, { sendOnly: BOOLEAN });
export const checkReason = (reason: unknown): void => {
  if (reason !== undefined) checkArgument('reason', reason, within(0, 65_535));
};
export const checkMessage = (message: unknown): void =>
  checkArgument('message', message, either(STRING, BYTES));
export const checkChunk = (chunk: unknown): void => checkArgument('chunk', chunk, either(STRING, BYTES));
export const checkTarget = (target: unknown): void => checkArgument('target', target, STRING);
export const checkXrcDomain = (domain: unknown): void =>
  checkArgument('domain', domain, instance('an XRC domain (device.openXrcDomain)', XrcDomain));
export const checkDomain = (pd: unknown): void =>
  checkArgument('pd', pd, instance('a protection domain (device.allocPd)', ProtectionDomain));
