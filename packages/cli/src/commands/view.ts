/** `roce view`: the page that analyzes captures in a browser, served or written. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { viewerPage } from '@node-roce/capture/node';
import { writeOutput } from '../drawing.ts';
import { UsageError } from '../options.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  output?: string;
  port?: number;
}

/** Only this machine's browsers: the page needs no others. */
const HOST = '127.0.0.1';

export async function run(
  _args: readonly string[],
  { output, port }: Options,
  terminal: Terminal,
): Promise<number> {
  if (output !== undefined && port !== undefined)
    throw new UsageError('expected --port (serves the page) or -o (writes the page), not both');
  const html = viewerPage();
  if (output !== undefined) {
    await writeOutput(
      html,
      { output, json: false },
      { facts: {}, summary: 'a page that analyzes captures; open it in a browser' },
      terminal,
    );
    return 0;
  }
  const server = createServer((request, response) => {
    const isPage = request.url === '/' && (request.method === 'GET' || request.method === 'HEAD');
    if (!isPage) {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('not found\n');
      return;
    }
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' });
    response.end(request.method === 'HEAD' ? undefined : html);
  });
  const { signal } = terminal;
  try {
    server.listen(port ?? 0, HOST);
    await once(server, 'listening', { signal });
    const { port: bound } = server.address() as { port: number };
    terminal.line(`http://${HOST}:${bound}/`);
    terminal.message('Drop a capture on this page; it is analyzed in the browser. Ctrl-C ends the server.');
    terminal.flush();
    await once(server, 'close', { signal }).catch((error: unknown) => {
      // Ctrl-C is how this command ends.
      if (!signal.aborted) throw error;
    });
  } finally {
    server.close();
    server.closeAllConnections();
  }
  return 0;
}
