/** `--metrics PORT`: counts of the devices of this process, for Prometheus, while the command runs. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { OPEN_METRICS_TYPE, openMetrics } from '@node-roce/verbs-api';
import type { Terminal } from './terminal.ts';

/**
 * Serves them to this machine until it is disposed of. It keeps no process alive.
 *
 * Rejects with EADDRINUSE where the port is taken.
 */
export async function serveMetrics(port: number, terminal: Terminal): Promise<AsyncDisposable> {
  const server = createServer(async ({ method = '', url = '' }, response) => {
    const isRead = method === 'GET' || method === 'HEAD';
    if (!isRead || !/^\/metrics(\?.*)?$/.test(url)) {
      response.writeHead(isRead ? 404 : 405, { 'content-type': 'text/plain', allow: 'GET, HEAD' });
      return void response.end('GET /metrics\n');
    }
    const text = await openMetrics();
    response.writeHead(200, { 'content-type': OPEN_METRICS_TYPE });
    response.end(method === 'HEAD' ? undefined : text);
  });
  server.listen(port, '127.0.0.1').unref();
  await once(server, 'listening');
  terminal.message(`metrics at http://127.0.0.1:${port}/metrics`);
  return {
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}
