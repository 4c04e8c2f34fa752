/** Requests and answers over a pool that connects again. */
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { type Ends, openEnds, text } from '../testing/ends.ts';
import { answerRequests, Client, type Listener, listen, type MessageConnection } from './index.ts';

const OPTIONS = { maxMessage: 256, slots: 4 };
type Handler = Parameters<typeof answerRequests>[1];

/** Serves all clients until the listener is closed; the connections that were accepted. */
async function serve(ends: Ends, handler: Handler): Promise<[Listener, MessageConnection[]]> {
  const listener = await listen({ device: ends.b, port: 7, ...OPTIONS });
  const connections: MessageConnection[] = [];
  void (async () => {
    for await (const connection of listener) {
      connections.push(connection);
      void answerRequests(connection, handler)
        .catch(() => {})
        .finally(() => connection.close());
    }
  })();
  return [listener, connections];
}

const upper: Handler = async (body) => {
  await turns((body.length * 7) % 5);
  return text(body)!.toUpperCase();
};

test('each of 500 requests at a time gets its own answer, over three connections', async () => {
  await using ends = await openEnds();
  const [listener, connections] = await serve(ends, upper);
  await using client = new Client('10.0.0.2:7', { device: ends.a, connections: 3, ...OPTIONS });
  const answers = await Promise.all(
    Array.from({ length: 500 }, async (_, i) =>
      text(await client.request(`request ${i} ${'x'.repeat(i % 40)}`)),
    ),
  );
  expect(answers).toEqual(Array.from({ length: 500 }, (_, i) => `REQUEST ${i} ${'X'.repeat(i % 40)}`));
  const more = async () => {
    while (client.connections < 3)
      await Promise.all(['a', 'b', 'c', 'd'].map((each) => client.request(each)));
  };
  await more();
  expect(connections).toHaveLength(3);
  expect(inspect(client)).toBe('Client { target: 10.0.0.2:7, connections: 3, pending: 0 }');
  await listener.close();
});

test('an error of the handler is that of the request, and of no other', async () => {
  await using ends = await openEnds();
  const [listener] = await serve(ends, (body) => {
    if (text(body) === 'bad') throw new Error('not today');
    return text(body) === 'large' ? new Uint8Array(252) : body;
  });
  await using client = new Client('10.0.0.2:7', { device: ends.a, ...OPTIONS });
  const [bad, large, good] = await Promise.allSettled(
    ['bad', 'large', 'good'].map((each) => client.request(each)),
  );
  expect(bad).toMatchObject({
    reason: { code: 'ERR_ROCE_REQUEST_FAILED', message: '10.0.0.2:7 answers: not today' },
  });
  expect(large).toMatchObject({ reason: { message: expect.stringContaining('251 at most') } });
  expect(text((good as PromiseFulfilledResult<Uint8Array>).value)).toBe('good');
  await expect(client.request(new Uint8Array(252))).rejects.toMatchObject({ errno: 'EMSGSIZE' });
  await listener.close();
});

test('a deadline and a signal end a request; its late answer goes to no other', async () => {
  await using ends = await openEnds();
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const [listener] = await serve(ends, async (body) => {
    if (text(body) === 'slow') await held;
    return body;
  });
  await using client = new Client('10.0.0.2:7', { device: ends.a, ...OPTIONS });
  await expect(client.request('slow', { timeout: 20 })).rejects.toMatchObject({
    code: 'ERR_ROCE_TIMEOUT',
    message: '10.0.0.2:7 has not answered within 20 ms',
  });
  const controller = new AbortController();
  const given = client.request('slow', { signal: controller.signal });
  await turns(20);
  controller.abort(new Error('enough'));
  await expect(given).rejects.toThrow('enough');
  release();
  expect(text(await client.request('next'))).toBe('next');
  expect(client.pending).toBe(0);
  await listener.close();
});

test('a request that waits for a slot when the connection ends goes to the next one; one that was sent is rejected', async () => {
  await using ends = await openEnds();
  const options = { ...OPTIONS, slots: 1 };
  const heard: string[] = [];
  const serveOne = async (handler: Handler) => {
    const listener = await listen({ device: ends.b, port: 7, ...options });
    const serving = listener.accept().then((connection) => {
      void answerRequests(connection, handler, { concurrency: 1 }).catch(() => {});
      return connection;
    });
    return { listener, serving };
  };
  const first = await serveOne((body) => {
    heard.push(text(body)!);
    return new Promise(() => {});
  });
  await using client = new Client('10.0.0.2:7', { device: ends.a, backoff: 2, maxBackoff: 8, ...options });
  const all = Array.from({ length: 8 }, (_, i) =>
    client.request(`${i}`).then(text, ({ code }: { code: string }) => code),
  );
  await turns(200);
  expect(heard).toEqual(['0']);
  await first.listener.close();
  const second = await serveOne((body) => body);
  await (await first.serving).close();
  const answers = await Promise.all(all);
  // Four were sent: one has the handler, one waits for it, one is in the inbox, and one finds no receive.
  const sent = answers.filter((each) => each === 'ERR_ROCE_CLOSED').length;
  expect(answers).toEqual(
    ['0', '1', '2', '3', '4', '5', '6', '7'].map((each, i) => (i < sent ? 'ERR_ROCE_CLOSED' : each)),
  );
  expect(sent).toBeLessThan(6);
  await second.listener.close();
});

test('connects again after its server has gone, and requests wait for that', async () => {
  await using ends = await openEnds();
  const [first, connections] = await serve(ends, upper);
  await using client = new Client('10.0.0.2:7', { device: ends.a, backoff: 2, maxBackoff: 8, ...OPTIONS });
  expect(text(await client.request('one'))).toBe('ONE');
  await first.close();
  await connections[0].close();
  await turns();
  const waiting = client.request('two');
  await turns(50);
  const [second] = await serve(ends, upper);
  expect(text(await waiting)).toBe('TWO');
  await second.close();
});

test('a request that was sent on a connection that ended is rejected, and close ends the others', async () => {
  await using ends = await openEnds();
  const [listener, connections] = await serve(ends, () => new Promise(() => {}));
  const client = new Client('10.0.0.2:7', { device: ends.a, ...OPTIONS });
  const lost = expect(client.request('x')).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  while (client.pending === 0) await turns(1);
  await turns(20);
  await connections[0].close();
  await lost;
  const closed = expect(client.request('y')).rejects.toMatchObject({
    code: 'ERR_ROCE_CLOSED',
    message: 'the client of 10.0.0.2:7 is closed',
  });
  await turns(5);
  await client.close();
  await closed;
  await expect(client.request('z')).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  await listener.close();
});

test.each([{ connections: 0 }, { requestTimeout: -1 }, { signal: AbortSignal.abort() }, { conections: 1 }])(
  'refuses %o',
  (options) => {
    expect(() => new Client('x:1', options as never)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
  },
);

test('a request that is repeated as soon as the one before was lost waits for the next connection', async () => {
  await using ends = await openEnds();
  let isSilent = true;
  const [listener, connections] = await serve(ends, (body) => (isSilent ? new Promise(() => {}) : body));
  await using client = new Client('10.0.0.2:7', { device: ends.a, backoff: 2, maxBackoff: 8, ...OPTIONS });
  const lost = client.request('x');
  while (client.pending === 0) await turns(1);
  await turns(20);
  isSilent = false;
  const repeated = lost.catch(() => client.request('again'));
  await connections[0].close();
  expect(text(await repeated)).toBe('again');
  await listener.close();
});

test('the handler has as many requests at a time as it wants; the others stay with the client', async () => {
  await using ends = await openEnds();
  const listener = await listen({ device: ends.b, port: 7, ...OPTIONS });
  const held: (() => void)[] = [];
  const handler: Handler = async (body) => {
    await new Promise<void>((resolve) => held.push(resolve));
    return body;
  };
  await using client = new Client('10.0.0.2:7', { device: ends.a, ...OPTIONS });
  const answers = Promise.all(Array.from({ length: 40 }, (_, i) => client.request(`${i}`)));
  const connection = await listener.accept();
  const answering = answerRequests(connection, handler, { concurrency: 3 });
  for (let answered = 0; answered < 40; answered++) {
    while (held.length === 0) await turns(1);
    await turns(20);
    expect(held.length).toBeLessThanOrEqual(3);
    held.shift()!();
  }
  expect((await answers).map(text)).toEqual(Array.from({ length: 40 }, (_, i) => `${i}`));
  // With handlers that never end, too, it ends with the connection.
  const lost = Array.from({ length: 9 }, () => expect(client.request('x')).rejects.toThrow());
  while (held.length < 3) await turns(1);
  await connection.close();
  await answering;
  await client.close();
  await Promise.all(lost);
  await expect(answerRequests(connection, handler, { concurrency: 0 })).rejects.toMatchObject({
    errno: 'EINVAL',
    attribute: 'concurrency',
  });
  await listener.close();
});
