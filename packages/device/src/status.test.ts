import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { message } from './protocol.ts';
import { deviceStatus } from './status.ts';

test.each(['null', '{}', '[]', '"device"', '{"network":7}', 'no JSON', ''])(
  'a program whose socket answers %s is no device',
  async (answer) => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-status-'));
    const path = join(folder, 'socket');
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(message(0, Buffer.from(answer)));
    });
    onTestFinished(() => {
      server.close();
      rmSync(folder, { recursive: true });
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    expect(await deviceStatus(path)).toBeUndefined();
  },
);
