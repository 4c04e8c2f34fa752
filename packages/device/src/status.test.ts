import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { message } from './protocol.ts';
import { deviceStatus, holdDevice } from './status.ts';

/** The path of a program's socket, which calls for each connection. */
async function listenAt(answer: (socket: Socket) => void): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'roce-status-'));
  const path = join(folder, 'socket');
  const server = createServer((socket) => {
    socket.on('error', () => {});
    answer(socket);
  });
  onTestFinished(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return path;
}

test.each(['null', '{}', '[]', '"device"', '{"network":7}', 'no JSON', ''])(
  'a program whose socket answers %s is no device',
  async (answer) => {
    const path = await listenAt((socket) => socket.end(message(0, Buffer.from(answer))));
    expect(await deviceStatus(path)).toBeUndefined();
  },
);

test.each([
  ['answers nothing', () => {}],
  ['answers byte by byte without an end', (socket: Socket) => void socket.write(Buffer.of(0))],
])('a wait for a program that %s ends with the signal, and its reason', async (_name, answer) => {
  const over = new AbortController();
  const reason = new Error('enough');
  const path = await listenAt((socket) => {
    answer(socket);
    socket.once('data', () => over.abort(reason));
  });
  await expect(holdDevice(path, over.signal)).rejects.toBe(reason);
  await expect(holdDevice(path, over.signal)).rejects.toBe(reason);
});
