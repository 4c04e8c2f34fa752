/** rstream of rdmacm-utils against our sockets, either as client and as server: each run is one over RDMA, and no TCP port is there. */
import { once } from 'node:events';
import { connect, listen, type RSocket } from '@node-roce/rsocket';
import { expect, inject, test } from 'vitest';
import { cmCases, guestListens, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));

/** A port of its own for each case. */
let port = 7600;

/** The size of its synchronization, and of a run: count messages one way, then the other, again and again. */
const SYNC = 16;
const RUN = { size: 70_000, count: 8, rounds: 4 };

/** Bytes by count: a program of rsockets reads and writes exactly so many. */
class Conversation {
  readonly #socket: RSocket;
  readonly #chunks: AsyncIterator<Buffer>;
  #left = 0;

  constructor(socket: RSocket) {
    this.#socket = socket;
    this.#chunks = socket[Symbol.asyncIterator]();
  }

  async take(length: number): Promise<void> {
    while (this.#left < length) {
      const { value, done } = await this.#chunks.next();
      if (done) throw new Error(`the end, where ${length} bytes were due`);
      this.#left += value.length;
    }
    this.#left -= length;
  }

  async give(length: number): Promise<void> {
    await new Promise<void>((resolve, reject) =>
      this.#socket.write(Buffer.alloc(length, 7), (error) => (error ? reject(error) : resolve())),
    );
  }

  /** The peer's end, and ours. */
  async end(): Promise<void> {
    const { done } = await this.#chunks.next();
    expect(done).toBe(true);
    if (!this.#socket.closed) await once(this.#socket, 'close');
  }
}

/** The other end of rstream's test. */
async function play(socket: RSocket, isClient: boolean): Promise<Conversation> {
  const conversation = new Conversation(socket);
  const give = (length: number) => conversation.give(length);
  const take = (length: number) => conversation.take(length);
  const [first, second] = isClient ? [give, take] : [take, give];
  await first(SYNC);
  await second(SYNC);
  for (let round = 0; round < RUN.rounds; round++) {
    for (let i = 0; i < RUN.count; i++) await first(RUN.size);
    for (let i = 0; i < RUN.count; i++) await second(RUN.size);
  }
  return conversation;
}

/** `rdma res` of the guest has the connection, and no program of it a TCP port. */
async function expectRdma(number: number): Promise<void> {
  const [ids, sockets] = (await guest.must('rdma res show cm_id; echo; ss -tnaH')).split('\n\n');
  expect(ids).toMatch(new RegExp(`state CONNECT .*:${number}`));
  expect(sockets ?? '').not.toContain(`:${number}`);
}

const OPTIONS = `-S ${RUN.size} -C ${RUN.count} -I ${RUN.rounds}`;
const MODES: Record<string, string> = {
  blocking: '-T b',
  'non-blocking': '-T n',
  asynchronous: '-T a',
  resolved: '-T r',
};

const cases = cmCases(Object.fromEntries(Object.keys(MODES).map((mode) => [mode, ['client', 'server']])));

test.each(cases)('rstream $tool is our $role, IPv$version', async ({ tool, role, version }) => {
  port++;
  const { ours, theirs } = placeOf(guest.address, version);
  const options = `${MODES[tool]} ${OPTIONS} -p ${port} ${version === 6 ? '-f ip6' : ''}`;
  if (role === 'client') {
    await using server = await listen({ address: ours, port });
    const running = guest.exec(`rstream -s ${ours} ${options}`, { timeout: 60_000 });
    const socket = await server.accept();
    await expectRdma(port);
    const conversation = await play(socket, false);
    const { code, stdout, stderr } = await running;
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toMatch(/^custom +68k +8 +4 /m);
    await conversation.end();
  } else {
    const running = guest.exec(`rstream -b ${theirs} ${options}`, { timeout: 60_000 });
    await guestListens(guest, port);
    const socket = await connect({ host: theirs, port, source: ours });
    await expectRdma(port);
    const conversation = await play(socket, true);
    socket.end();
    const { code, stdout, stderr } = await running;
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    await conversation.end();
  }
});
