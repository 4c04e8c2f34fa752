/** Tables that clients read by RDMA READ while their server changes them. */
import { inspect } from 'node:util';
import { OperationBits } from '@node-roce/wire';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { type Ends, openEnds, text } from '../testing/ends.ts';
import { answerRequests, Client, type Listener, listen, MessageConnection, Table } from './index.ts';
import { lookUp, parsePlace, placeBytes, type ReadTable } from './table-reader.ts';

const OPTIONS = { maxMessage: 256, slots: 4 };

async function serve(ends: Ends, table: Table | undefined, options: object = OPTIONS) {
  const listener: Listener = await listen({ device: ends.b, port: 7, ...options });
  const connections: MessageConnection[] = [];
  void (async () => {
    for await (const connection of listener) {
      connections.push(connection);
      void answerRequests(connection, (body) => body, table && { table })
        .catch(() => {})
        .finally(() => connection.close());
    }
  })();
  return { listener, connections };
}

/** As the adapter of the table's server would answer. */
const reading =
  ({ memory }: Table): ReadTable =>
  async (offset, length) =>
    Uint8Array.from(memory.subarray(offset, offset + length));

const never = new AbortController().signal;
const find = async (table: Table, key: string, read = reading(table), atATime = 3) => {
  const found = await lookUp(new TextEncoder().encode(key), { ...table, atATime }, 'peer', read, never);
  return found && text(found.value);
};

describe('a table', () => {
  test('has what a Map has, here and at a reader, after each of 4000 changes that fill it', async () => {
    const table = new Table({ entries: 24, entrySize: 20 });
    const map = new Map<string, string>();
    let state = 7;
    const draw = (below: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return (state >>> 8) % below;
    };
    let refused = 0;
    for (let change = 0; change < 4000; change++) {
      const key = `key ${draw(40)}`;
      if (draw(3) === 0) expect(table.delete(key)).toBe(map.delete(key));
      else if (map.size === 24 && !map.has(key)) {
        refused++;
        expect(() => table.set(key, 'x')).toThrow(
          expect.objectContaining({ code: 'ERR_ROCE_LIMIT', attribute: 'entries' }),
        );
      } else {
        const value = 'v'.repeat(draw(13));
        table.set(key, value);
        map.set(key, value);
      }
      expect(table.size).toBe(map.size);
      const asked = `key ${draw(40)}`;
      expect(text(table.get(asked))).toBe(map.get(asked));
      expect(await find(table, asked, reading(table), 1 + draw(8))).toBe(map.get(asked));
    }
    expect(refused).toBeGreaterThan(50);
    for (const key of map.keys()) expect(table.delete(key)).toBe(true);
    expect(await find(table, 'key 0')).toBeUndefined();
    expect(Buffer.from(table.memory).includes('key')).toBe(false);
  });

  test('takes keys and values to the last byte, empty ones too', async () => {
    const table = new Table({ entries: 1, entrySize: 9 });
    expect(await find(table.set('', ''), '')).toBe('');
    table.delete('');
    expect(await find(table.set('12345', 'äö'), '12345')).toBe('äö');
    expect(() => table.set('12345', 'äöx')).toThrow(expect.objectContaining({ errno: 'EMSGSIZE' }));
    expect(await find(table, '12345')).toBe('äö');
    expect(inspect(table)).toBe('Table { size: 1, entries: 1, entrySize: 9 }');
  });

  test.each([{}, { entries: 0 }, { entries: 1.5 }, { entries: 2 ** 29, entrySize: 2 ** 30 }, { rows: 3 }])(
    'refuses %o',
    (options) => {
      expect(() => new Table(options as never)).toThrow(
        expect.objectContaining({ code: 'ERR_ROCE_INVALID_ATTRIBUTE' }),
      );
    },
  );

  test('refuses keys of another type, and longer ones than a row has room for', () => {
    const table = new Table({ entries: 1 });
    for (const key of [undefined, 3, 'x'.repeat(65_536)])
      for (const call of [() => table.set(key as never, ''), () => table.get(key as never)])
        expect(call).toThrow(expect.objectContaining({ attribute: 'key' }));
  });
});

describe('a reader', () => {
  test('of a row that is new up to any byte and old behind it gets one of the two values', async () => {
    const table = new Table({ entries: 1, entrySize: 60 });
    const [before, after] = ['old '.repeat(12), 'NEW'.repeat(5)];
    const old = Uint8Array.from(table.set('k', before).memory);
    const now = Uint8Array.from(table.set('k', after).memory);
    let torn = 0;
    for (let split = 0; split <= now.length; split++)
      for (const [first, last] of [
        [now, old],
        [old, now],
      ]) {
        let reads = 0;
        const value = await find(table, 'k', async (offset, length) => {
          const whole =
            reads++ > 0 ? now : Uint8Array.from([...first.subarray(0, split), ...last.subarray(split)]);
          return whole.slice(offset, offset + length);
        });
        expect([before, after]).toContain(value);
        if (reads > 1) torn++;
      }
    expect(torn).toBeGreaterThan(50);
  });

  test('gives an entry up that changes during each READ, and follows its signal meanwhile', async () => {
    const table = new Table({ entries: 1 });
    let reads = 0;
    const torn: ReadTable = async (_, length) => {
      reads++;
      return new Uint8Array(length);
    };
    await expect(find(table, 'k', torn)).rejects.toMatchObject({
      code: 'ERR_ROCE_TABLE_CHANGING',
      errno: 'EAGAIN',
    });
    expect(reads).toBe(12);
    const controller = new AbortController();
    const read: ReadTable = (offset, length) => {
      controller.abort(new Error('enough'));
      return torn(offset, length);
    };
    const place = { ...table, atATime: 1 };
    await expect(lookUp(new Uint8Array(1), place, 'peer', read, controller.signal)).rejects.toThrow('enough');
    expect(reads).toBe(13);
  });

  test('ends a search in a table without an empty row', async () => {
    const table = new Table({ entries: 4 });
    const full = Uint8Array.from(table.set('k', '').memory);
    const at = Array.from({ length: table.rows }, (_, i) => i * table.rowSize).find(
      (i) => full[i + 5] === 1,
    )!;
    for (let row = 0; row < table.rows; row++) full.copyWithin(row * table.rowSize, at, at + table.rowSize);
    expect(await find(table, 'other', async (at, length) => full.slice(at, at + length))).toBeUndefined();
  });

  test.each<[string, (bytes: DataView) => void]>([
    ['another version', (bytes) => bytes.setUint8(0, 2)],
    ['no rows', (bytes) => bytes.setUint32(4, 0)],
    ['rows without room', (bytes) => bytes.setUint32(8, 11)],
    ['rows that are longer than a READ', (bytes) => bytes.setUint32(8, 257)],
    ['an end beyond all addresses', (bytes) => bytes.setBigUint64(16, 2n ** 64n - 100n)],
  ])('refuses a table of %s', (_, change) => {
    const bytes = placeBytes({ rows: 8, rowSize: 128 }, { addr: 4096n, rkey: 9 });
    expect(parsePlace('peer', bytes, 256)).toEqual({
      rows: 8,
      rowSize: 128,
      addr: 4096n,
      rkey: 9,
      atATime: 2,
    });
    change(new DataView(bytes.buffer));
    expect(() => parsePlace('peer', bytes, 256)).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_REQUEST_FAILED' }),
    );
    expect(() => parsePlace('peer', bytes.subarray(0, 23), 256)).toThrow('peer has a table');
  });
});

/** Drops each so-manieth packet that answers a READ: the responder then fetches its bytes again, later than others of the READ. */
function loseResponses({ network }: Ends, each: number): void {
  const deliver = network.deliver.bind(network);
  let responses = 0;
  network.deliver = (packet, destination) => {
    const isResponse =
      packet.bytes[0] >= OperationBits.RDMA_READ_RESPONSE_FIRST &&
      packet.bytes[0] <= OperationBits.RDMA_READ_RESPONSE_ONLY;
    if (isResponse && ++responses % each === 0) return;
    deliver(packet, destination);
  };
}

test('values come while the server changes them, none of them torn, with requests between them', async () => {
  clockOfTurns();
  await using ends = await openEnds();
  loseResponses(ends, 9);
  const options = { maxMessage: 8192, slots: 14, requestTimeout: 0 };
  const { requestTimeout: _, ...listening } = options;
  const table = new Table({ entries: 4, entrySize: 6000 });
  const { listener } = await serve(ends, table, listening);
  await using client = new Client('10.0.0.2:7', { device: ends.a, ...options });
  const keys = ['a', 'b', 'c', 'd'];
  let written = 0;
  const write = () => {
    const letter = String.fromCharCode(97 + (written % 26));
    table.set(keys[written++ % 4], letter.repeat(3000 + ((written * 37) % 2900)));
  };
  for (const _ of keys) write();
  let isReading = true;
  const writing = (async () => {
    for (; isReading; await turns(3)) write();
  })();
  const seen = new Set<string>();
  const reads = vi.spyOn(MessageConnection.prototype, 'readRemote');
  onTestFinished(() => reads.mockRestore());
  let gets = 0;
  await Promise.all(
    Array.from({ length: 16 }, async (_, i) => {
      for (let round = 0; round < 12; round++) {
        const value = text(await client.get(keys[(i + round) % 4]))!;
        expect(value.length).toBeGreaterThanOrEqual(3000);
        expect(value).toBe(value[0].repeat(value.length));
        seen.add(value);
        gets++;
        expect(text(await client.request(`${i} ${round}`))).toBe(`${i} ${round}`);
      }
    }),
  );
  isReading = false;
  await writing;
  expect(seen.size).toBeGreaterThan(20);
  // Each key is in its first row: more READs than values are those that were torn.
  expect(reads.mock.calls.length).toBeGreaterThan(gets);
  await listener.close();
});

test('a client reads on from the next server; nothing of a table is left with a connection', async () => {
  await using ends = await openEnds(1024, 1024, { limits: { maxPd: 4 } });
  await using client = new Client('10.0.0.2:7', { device: ends.a, backoff: 2, maxBackoff: 8, ...OPTIONS });
  for (const name of ['one', 'two', 'three', 'four', 'five']) {
    const table = new Table({ entries: 8 }).set('name', name);
    const { listener, connections } = await serve(ends, table);
    expect(text(await client.get('name'))).toBe(name);
    expect(client.pending).toBe(0);
    await listener.close();
    await connections[0].close();
  }
});

test('a server without a table, a deadline, a signal and a closed client are the errors they are', async () => {
  await using ends = await openEnds();
  const { listener, connections } = await serve(ends, undefined);
  const client = new Client('10.0.0.2:7', { device: ends.a, backoff: 2, ...OPTIONS });
  const get = (options?: object) => client.get('k', options);
  await expect(get()).rejects.toMatchObject({
    code: 'ERR_ROCE_REQUEST_FAILED',
    message: expect.stringContaining('10.0.0.2:7 answers: there is no table'),
  });
  await expect(get({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
  await expect(get({ timeout: -1 })).rejects.toMatchObject({ attribute: 'timeout' });
  await expect(client.get(1 as never)).rejects.toMatchObject({ attribute: 'key' });
  await expect(answerRequests(connections[0], (x) => x, { table: {} as never })).rejects.toMatchObject({
    attribute: 'table',
  });
  await listener.close();
  await connections[0].close();
  await expect(get({ timeout: 20 })).rejects.toMatchObject({ code: 'ERR_ROCE_TIMEOUT' });
  await client.close();
  await expect(get()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
});

test('a table whose rows are longer than a message of the client is named', async () => {
  await using ends = await openEnds();
  const { listener } = await serve(ends, new Table({ entries: 2, entrySize: 300 }));
  await using client = new Client('10.0.0.2:7', { device: ends.a, ...OPTIONS });
  await expect(client.get('k')).rejects.toMatchObject({
    code: 'ERR_ROCE_REQUEST_FAILED',
    message: '10.0.0.2:7 has a table with rows of 312 bytes (expected 256 at most (maxMessage))',
  });
  await listener.close();
});
