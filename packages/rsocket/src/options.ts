/** The options of this package's calls, by name and type. */
import { ADDRESS } from '@node-roce/rdmacm/parts';
import {
  ANY,
  BOOLEAN,
  checkArgument,
  checkOptions,
  NUMBER,
  OBJECT,
  type OptionTypes,
  SIGNAL,
  STRING,
  within,
} from '@node-roce/verbs-api/options';
import { MAX_MAPPINGS } from './wire.ts';

const BYTES = within(2, 2 ** 30);
const MILLISECONDS = within(0, 2 ** 31 - 1);
export const MAX_PORT = 65_535;
const PORT = within(0, MAX_PORT);

const COMMON: OptionTypes = {
  receiveBuffer: BYTES,
  sendBuffer: BYTES,
  queue: within(8, 32_767),
  ioMappings: within(0, MAX_MAPPINGS),
  closeTimeout: MILLISECONDS,
  keepAlive: MILLISECONDS,
  allowHalfOpen: BOOLEAN,
  readableHighWaterMark: within(1, 2 ** 31 - 1),
  writableHighWaterMark: within(1, 2 ** 31 - 1),
  signal: SIGNAL,
  // The id's to check.
  device: ANY,
  deviceOptions: ANY,
  ackTimeoutMs: NUMBER,
  timing: OBJECT,
};
const CONNECT: OptionTypes = {
  ...COMMON,
  host: STRING,
  port: PORT,
  source: ADDRESS,
  connectTimeout: MILLISECONDS,
};
const LISTEN: OptionTypes = { ...COMMON, port: PORT, address: ADDRESS, backlog: within(1, 65_535) };

/** @throws EINVAL for a name that does not exist, a value of a wrong type, and a host or port that is missing */
export function checkConnect(options: object): void {
  checkOptions('', options, CONNECT, { aliases: { address: 'host', localAddress: 'source' } });
  const { host, port } = options as Record<string, unknown>;
  checkArgument('host', host, STRING);
  checkArgument('port', port, PORT);
}

/** @throws EINVAL as `checkConnect` */
export function checkListen(options: object): void {
  checkOptions('', options, LISTEN, { aliases: { host: 'address' } });
  checkArgument('port', (options as Record<string, unknown>).port, PORT);
}
