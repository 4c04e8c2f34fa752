/** The declarations of all packages, as strict programs of other projects compile against them. */
// @module-tag slow
// @module-tag gate
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
// Below the root, so that the packages are found as in a project that depends on them.
mkdirSync(join(root, 'node_modules/.cache'), { recursive: true });
const folder = mkdtempSync(join(root, 'node_modules/.cache/declarations-'));
afterAll(() => rmSync(folder, { recursive: true }));

const PACKAGES = readdirSync(join(root, 'packages')).filter((name) => name !== 'cli');

function compile(compilerOptions: object, code: string) {
  writeFileSync(join(folder, 'main.ts'), code);
  const options = { strict: true, noEmit: true, skipLibCheck: false, target: 'es2022', ...compilerOptions };
  const tsconfig = { compilerOptions: { ...options, types: ['node'] }, files: ['main.ts'] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(tsconfig));
  return spawnSync(join(root, 'node_modules/.bin/tsc'), ['-p', folder], { encoding: 'utf8' }).stdout;
}

const EVERYTHING = `${PACKAGES.map((name, i) => `import * as p${i} from '@node-roce/${name}';`).join('\n')}
export default [${PACKAGES.map((_, i) => `p${i}`).join(', ')}];`;

test.each([
  ['nodenext', { module: 'nodenext', moduleResolution: 'nodenext' }],
  ['a bundler', { module: 'esnext', moduleResolution: 'bundler' }],
])('compile without an error by the strictest options, with the resolution of %s', (_name, options) => {
  const strictest = {
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    noPropertyAccessFromIndexSignature: true,
    verbatimModuleSyntax: true,
    isolatedModules: true,
  };
  expect(PACKAGES.length).toBeGreaterThan(7);
  expect(compile({ ...options, ...strictest }, EVERYTHING)).toBe('');
});

const STREAMS = `import type { Duplex } from 'node:stream';
import { answerRequests, Client, connect, type ConnectionStream, listen, type StreamPair } from '@node-roce/rdmacm';

await using listener = await listen({ port: 0, keepAlive: 1000, idleTimeout: 0, closeTimeout: 100, ackTimeoutMs: 5 });
const connection = await connect(\`localhost:\${listener.port}\`, { connectTimeout: 5000, rnrTimerMs: 0.5 });
connection.on('close', (cause: Error | undefined) => console.log(cause)).once('drain', () => {});
const stream: ConnectionStream = connection.stream({ allowHalfOpen: true, signal: new AbortController().signal });
const duplex: Duplex = stream;
duplex.end(stream.remoteAddress);
const pair: StreamPair = (await listener.accept()).streams({ readableHighWaterMark: 5 });
await pair.readable.pipeTo(pair.writable);
await answerRequests(await listener.accept(), (body: Uint8Array) => body);
await using client = new Client('localhost:1', { connections: 2, requestTimeout: 5, keepAlive: 0 });
const answer: Uint8Array = await client.request('x', { timeout: 5 });
console.log(answer.length);
// @ts-expect-error a Web stream ends by itself
(await listener.accept()).streams({ allowHalfOpen: true });`;

test('a program of streams compiles', () => {
  const options = {
    module: 'nodenext',
    lib: ['es2022', 'esnext.disposable'],
    exactOptionalPropertyTypes: true,
  };
  expect(compile(options, STREAMS)).toBe('');
});

const SOCKETS = `import { createReadStream } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { connect as connectMessages } from '@node-roce/rdmacm';
import { connect, createConnection, createServer, type RSocket } from '@node-roce/rsocket';

const agent = new http.Agent({ keepAlive: true });
agent.createConnection = createConnection;
http.get({ host: '10.0.0.1', port: 8080, createConnection }, (response) => response.pipe(process.stdout));
const service = http.createServer((_request, response) => void response.end('over RDMA'));
const server = await createServer({ port: 8080 }, (socket) => service.emit('connection', socket));
const { port, family }: net.AddressInfo = server.address();
const signal = undefined as AbortSignal | undefined;
const socket: Duplex & RSocket = await connect({ host: 'localhost', port, signal });
await pipeline(createReadStream('file'), socket);
const either: (socket: net.Socket | RSocket) => void = (each) => {
  each.setNoDelay(true).setKeepAlive(true, 5).ref().unref();
  each.once('connect', () => console.log(each.readyState, each.connecting, each.pending, each.address()));
  console.log(each.remoteAddress, each.remotePort, each.remoteFamily, each.localAddress, each.localFamily);
};
either(createConnection(port, '127.0.0.1', () => console.log(family)));
either(createConnection({ port, timeout: 5, localAddress: '127.0.0.1', keepAlive: true }, () => {}));
(await connectMessages('localhost:1', { signal })).stream({ signal }).end();
// @ts-expect-error a host is required
await connect({ port });`;

test('a program of sockets compiles, also one that node:net and an agent of node:http share with them', () => {
  const options = {
    module: 'nodenext',
    lib: ['es2022', 'esnext.disposable'],
    exactOptionalPropertyTypes: true,
  };
  expect(compile(options, SOCKETS)).toBe('');
});

test('the check sees an error', () => {
  const code = "import { openDevice } from '@node-roce/verbs-api';\nvoid openDevice({});";
  expect(compile({ module: 'nodenext' }, code)).toContain('main.ts(2,');
});
