/** Peers of @node-roce/perf that are other programs, or none: a call ends within its timeout with an error that has a code, and the port can be served again. */
import { createSocket } from 'node:dgram';
import { setTimeout as sleep } from 'node:timers/promises';
import { callPerf, type PerfOptions } from '@node-roce/perf';
import { RoceError } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { playTest } from '../perftest-peer/main.mjs';
import { EXCHANGE, expectError, guard, LEFT } from './guard.ts';
import { DIALOGUE_OF, recorded } from './recorded.ts';
import { called, closed, dialed, IDLE, OURS, say, served, THEIRS } from './sides.ts';

guard();

describe('a server', () => {
  test('is found by a port scanner', async () => {
    expectError(await served(async (port) => (await dialed(port)).end()), EXCHANGE);
    expectError(await served(async (port) => (await dialed(port)).destroy()), EXCHANGE);
    expectError(await served(async (port) => (await dialed(port)).resetAndDestroy()), EXCHANGE);
  });

  test.each([
    ['HTTP', 'GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\n\r\n'],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['SSH', 'SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n'],
    ['qperf', '\0\0\x04\0\x0b\0\x01\0'.padEnd(200, '\0')],
    ['iperf3', 'a'.repeat(36).padEnd(37, '\0')],
  ])('is called by a client of %s', async (_what, text) => {
    const outcome = await served(async (port) => {
      const socket = await dialed(port);
      socket.write(Buffer.from(text, 'latin1'));
      await closed(socket);
    });
    expectError(outcome, LEFT);
  });

  test.each([
    ...[
      '5.32',
      '0',
      '-1',
      'NaN',
      'Infinity',
      '1e9',
      '',
      ' ',
      '6.29'.padEnd(40, '0'),
      '6,29',
      'six',
      '6.29 beta',
    ],
  ])('is called by version "%s"', async (version) => {
    const outcome = await served(async (port) => {
      const socket = await dialed(port);
      socket.write(Buffer.from(version.padEnd(16, '\0').slice(0, 16), 'latin1'));
      socket.end();
      await closed(socket);
    });
    expectError(outcome, LEFT);
  });

  test('hears nothing', async () => {
    const outcome = await served(async (port) => closed(await dialed(port)));
    expectError(outcome, /^ERR_ROCE_TIMEOUT$/);
  });

  test('hears nothing but packets of others', async () => {
    const others = createSocket('udp4');
    const timer = setInterval(() => others.send(Buffer.alloc(64), 4791, OURS), 20);
    const outcome = await served(async (port) => closed(await dialed(port)));
    clearInterval(timer);
    others.close();
    expectError(outcome, /^ERR_ROCE_TIMEOUT$/);
  });

  test('hears a byte at a time, each before its patience ends', async () => {
    const bytes = Buffer.concat(recorded('6.29-read_lat', 'client'));
    const outcome = await served(async (port) => {
      const socket = await dialed(port);
      const over = closed(socket);
      for (let i = 0; i < bytes.length && !socket.destroyed; i++) {
        socket.write(bytes.subarray(i, i + 1));
        await sleep(200);
      }
      await over;
    });
    expectError(outcome, LEFT);
  });

  test('hears endless bytes without a line', async () => {
    let taken = 0;
    const outcome = await served(async (port) => {
      const socket = await dialed(port);
      const over = closed(socket);
      while (!socket.destroyed && socket.bytesWritten < 1 << 28) {
        if (!socket.write(Buffer.alloc(1 << 16, 0x41))) await Promise.race([sleep(5), over]);
      }
      taken = socket.bytesWritten - socket.writableLength;
    });
    expectError(outcome, LEFT);
    expect(taken).toBeLessThan(1 << 26);
  });

  test('hears endless bytes while the data runs', async () => {
    const options: PerfOptions = { verb: 'send', measure: 'bw', size: 64, iters: 5 };
    const dialogue = recorded('6.29-send_bw', 'client').slice(0, -1);
    let taken = 0;
    const outcome = await served(async (port) => {
      const socket = await dialed(port);
      const over = closed(socket);
      socket.write(Buffer.concat(dialogue));
      while (!socket.destroyed && socket.bytesWritten < 1 << 26) {
        if (!socket.write(Buffer.alloc(1 << 16, 0x41))) await Promise.race([sleep(5), over]);
      }
      taken = socket.bytesWritten - socket.writableLength;
    }, options);
    expectError(outcome);
    // The kernel's buffers of both sockets, and no more than as much again.
    expect(taken).toBeLessThan(1 << 25);
  });

  test('takes recorded dialogues, whole messages and pieces of a byte', async () => {
    const patient = { timeout: 120 };
    const whole = await served(
      async (port) => say(await dialed(port), DIALOGUE_OF['6.29-read_lat']),
      IDLE,
      patient,
    );
    expect(whole.error).toBeUndefined();
    const { messages, answers } = DIALOGUE_OF['6.29-read_lat'];
    const bytes = messages.map((message) => [...message].map((byte) => Buffer.of(byte)));
    const pieces = await served(
      async (port) => {
        const socket = await dialed(port);
        socket.setNoDelay(true);
        await say(socket, { messages, answers }, async (_, i) => {
          for (const byte of bytes[i]) {
            socket.write(byte);
            await new Promise(setImmediate);
          }
        });
      },
      IDLE,
      patient,
    );
    expect(pieces.error).toBeUndefined();
    // The structure of a build with mlx5dv in two parts: its end is not taken for what comes after it.
    const mlx5 = await served(
      async (port) => {
        const socket = await dialed(port);
        socket.setNoDelay(true);
        await say(socket, DIALOGUE_OF['6.29-mlx5-write_bw'], async (message) => {
          socket.write(message.subarray(0, 312));
          await sleep(30);
          if (message.length > 312) socket.write(message.subarray(312));
        });
      },
      { verb: 'write', measure: 'bw', size: 64, iters: 5 },
      patient,
    );
    expect(mlx5.error).toBeUndefined();
  });

  test('serves its port again', async () => {
    const first = await served(async (port) => (await dialed(port)).end());
    expectError(first);
    let port = 0;
    for (let i = 0; i < 3; i++) {
      const outcome = await served(
        async (at) => {
          port = at;
          const socket = await dialed(at);
          socket.end('GET / HTTP/1.0\r\n\r\n');
          await closed(socket);
        },
        IDLE,
        { port },
      );
      expectError(outcome);
    }
    const good = await served(
      (at) =>
        playTest({
          address: THEIRS,
          host: OURS,
          role: 'client',
          verb: 'read',
          kind: 'lat',
          size: 64,
          iters: 5,
          port: at,
        }),
      IDLE,
      { port, timeout: 120 },
    );
    expect(good.error).toBeUndefined();
  });
});

describe('a client', () => {
  test('finds nobody', async () => {
    const side = { port: 1, host: THEIRS, address: OURS, timeout: 0.4 };
    const error = await callPerf(IDLE, side).catch((reason) => reason);
    expect(error).toBeInstanceOf(RoceError);
    expect(error.code).toMatch(/^ERR_ROCE_/);
  });

  test.each([
    ['closes', (socket) => socket.end()],
    ['resets', (socket) => socket.resetAndDestroy()],
    ['speaks HTTP', (socket) => socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')],
    ['speaks SSH', (socket) => socket.write('SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n')],
    ['is silent', () => {}],
    ['is of version 5.32', (socket) => socket.write('5.32'.padEnd(16, '\0'))],
  ] as [string, (socket: import('node:net').Socket) => void][])(
    'finds a server that %s',
    async (_what, attack) => {
      expectError(await called(attack), LEFT);
    },
  );

  test('hears a byte at a time, each before its patience ends', async () => {
    const bytes = Buffer.concat(recorded('6.29-read_lat', 'server'));
    const outcome = await called(async (socket) => {
      for (let i = 0; i < bytes.length && !socket.destroyed; i++) {
        socket.write(bytes.subarray(i, i + 1));
        await sleep(200);
      }
    });
    expectError(outcome, LEFT);
  });

  test('hears endless bytes', async () => {
    const outcome = await called(async (socket) => {
      while (!socket.destroyed) {
        socket.write(Buffer.alloc(1 << 16, 0x41));
        await sleep(1);
      }
    });
    expectError(outcome, LEFT);
  });
});
