/** The other end of librdmacm's programs of rsockets: rstream, riostream and rcopy. */
import { once } from 'node:events';
import type { RSocket } from '@node-roce/rsocket';

/** Bytes of a run's synchronization. */
const SYNC = 16;

/** Bytes by count: a program of rsockets reads and writes exactly so many. */
export class Conversation {
  readonly socket: RSocket;
  readonly #chunks: AsyncIterator<Buffer>;
  #waiting: Buffer = Buffer.alloc(0);

  constructor(socket: RSocket) {
    this.socket = socket;
    this.#chunks = socket[Symbol.asyncIterator]();
  }

  async take(length: number): Promise<Buffer> {
    const parts = [this.#waiting];
    for (let count = this.#waiting.length; count < length; count += parts[parts.length - 1].length) {
      const { value, done } = await this.#chunks.next();
      if (done) throw new Error(`the end, where ${length} bytes were due`);
      parts.push(value);
    }
    const all = Buffer.concat(parts);
    this.#waiting = all.subarray(length);
    return all.subarray(0, length);
  }

  async give(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve, reject) =>
      this.socket.write(bytes, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** The peer's end, and ours. */
  async end(): Promise<void> {
    const { value, done } = await this.#chunks.next();
    if (!done) throw new Error(`${value.length} bytes, where the end was due`);
    if (!this.socket.closed) await once(this.socket, 'close');
  }
}

/** Messages of a size, one way and then the other, `count` at a time, in so many rounds (-S, -C, -I). */
export interface Run {
  size: number;
  count: number;
  rounds: number;
}

export const optionsOf = ({ size, count, rounds }: Run) => `-S ${size} -C ${count} -I ${rounds}`;

async function synchronize(conversation: Conversation, isClient: boolean): Promise<void> {
  if (isClient) await conversation.give(Buffer.alloc(SYNC));
  await conversation.take(SYNC);
  if (!isClient) await conversation.give(Buffer.alloc(SYNC));
}

/** rstream's other end. */
export async function playStream(socket: RSocket, isClient: boolean, run: Run): Promise<Conversation> {
  const conversation = new Conversation(socket);
  await synchronize(conversation, isClient);
  const give = () => conversation.give(Buffer.alloc(run.size, 7));
  const take = async () => void (await conversation.take(run.size));
  for (let round = 0; round < run.rounds; round++)
    for (const step of isClient ? [give, take] : [take, give])
      for (let i = 0; i < run.count; i++) await step();
  return conversation;
}

/**
 * riostream's other end with `-T v`: each side writes into the other's memory. The last byte of the last of `count` WRITEs counts the
 * turns of both sides; its other bytes, and no others, are numbered.
 */
export async function playDirect(socket: RSocket, isClient: boolean, run: Run): Promise<Conversation> {
  const conversation = new Conversation(socket);
  const last = run.size - 1;
  const memory = new Uint8Array(new SharedArrayBuffer(run.size)).fill(255, last);
  const mapping = await socket.iomap(memory);
  await synchronize(conversation, isClient);
  let turn = 0;
  let [sent, came] = [0, 0];
  const give = async () => {
    const bytes = Uint8Array.from(memory);
    for (let i = 1; i < run.count; i++) await socket.iowrite(bytes, 0);
    for (let at = 0; at < last; at++) bytes[at] = sent++;
    bytes[last] = turn++;
    await socket.iowrite(bytes, 0);
  };
  const take = async () => {
    // As riostream does: nothing else shows that the bytes are there.
    while (memory[last] !== turn) {
      if (socket.destroyed) throw new Error(`the socket ended before turn ${turn}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    turn++;
    for (let at = 0; at < last; at++)
      if (memory[at] !== (came++ & 255)) throw new Error(`turn ${turn - 1}: byte ${at} is ${memory[at]}`);
  };
  for (let round = 0; round < run.rounds; round++)
    for (const step of isClient ? [give, take] : [take, give]) await step();
  await mapping.unmap();
  return conversation;
}

/** rcopy's commands; an answer has the upper bit, too. */
const Command = { OPEN: 1, CLOSE: 2, WRITE: 3 } as const;
const ANSWER = 0x80;
const HEADER = 16;

function header(command: number, length = HEADER, data = 0): Buffer {
  const bytes = Buffer.alloc(HEADER);
  bytes.writeUInt8(command, 1);
  bytes.writeUInt16LE(length, 2);
  bytes.writeUInt32LE(data, 4);
  return bytes;
}

/** The other end of an rcopy that sends; returns the name and the bytes of its file. */
export async function receiveCopy(socket: RSocket): Promise<{ path: string; bytes: Buffer }> {
  const conversation = new Conversation(socket);
  let path = '';
  let bytes: Buffer = Buffer.alloc(0);
  for (;;) {
    const command = await conversation.take(HEADER);
    const rest = await conversation.take(command.readUInt16LE(2) - HEADER);
    if (command[1] === Command.OPEN) path = rest.toString().replace(/\0*$/, '');
    if (command[1] === Command.WRITE) bytes = await conversation.take(Number(rest.readBigUInt64LE()));
    await conversation.give(header(command[1] | ANSWER));
    if (command[1] === Command.CLOSE) break;
  }
  await conversation.end();
  return { path, bytes };
}

/** The other end of an rcopy that waits for a file. */
export async function sendCopy(socket: RSocket, path: string, bytes: Uint8Array): Promise<void> {
  const conversation = new Conversation(socket);
  const answered = async (command: number) => {
    const answer = await conversation.take(HEADER);
    if (answer[1] !== (command | ANSWER) || answer.readUInt32LE(4) !== 0)
      throw new Error(`command ${command}: ${answer.toString('hex')}`);
  };
  const name = Buffer.from(`${path}\0`);
  await conversation.give(Buffer.concat([header(Command.OPEN, HEADER + name.length, 0o644), name]));
  await answered(Command.OPEN);
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(bytes.length));
  await conversation.give(Buffer.concat([header(Command.WRITE, HEADER + 8), size]));
  await conversation.give(bytes);
  await answered(Command.WRITE);
  await conversation.give(header(Command.CLOSE));
  await answered(Command.CLOSE);
  socket.end();
  await conversation.end();
}
