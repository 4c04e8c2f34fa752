/** A registry on loopback, for tests that install packages. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const CREATED = '2026-01-01T00:00:00.000Z';

/** Serves the tarballs of a folder by the names of their packages. Requests for others go to `upstream`, or find nothing. */
export async function serveRegistry(folder: string, upstream?: string): Promise<Server> {
  const packages = new Map<string, { file: string; manifest: { version: string }; integrity: string }>();
  for (const file of readdirSync(folder)) {
    const { stdout } = await run('tar', ['-xOf', join(folder, file), 'package/package.json']);
    const integrity = createHash('sha512')
      .update(readFileSync(join(folder, file)))
      .digest('base64');
    const manifest = JSON.parse(stdout);
    packages.set(manifest.name, { file, manifest, integrity: `sha512-${integrity}` });
  }
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '/').slice(1);
    const found = packages.get(path);
    if (found) {
      const { version } = found.manifest;
      const tarball = `http://${request.headers.host}/tarballs/${found.file}`;
      const entry = { ...found.manifest, dist: { tarball, integrity: found.integrity } };
      const time = { created: CREATED, [version]: CREATED };
      const versions = { [version]: entry };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ name: path, 'dist-tags': { latest: version }, versions, time }));
    } else if (path.startsWith('tarballs/')) {
      response.end(readFileSync(join(folder, path.slice('tarballs/'.length))));
    } else if (upstream !== undefined) {
      response.writeHead(302, { location: new URL(`${request.url}`.slice(1), upstream).href }).end();
    } else {
      response.writeHead(404).end();
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return server;
}
