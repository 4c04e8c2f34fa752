/**
 * A peer that connects as an rsocket and then sends whatever it likes: messages as the protocol has them, with changed bits, in any order.
 * A socket goes on or fails with an error of its own, and nothing is left of it. Seeded: ROCE_RSOCKET_MESSAGES=1000000 is the long run,
 * ROCE_RSOCKET_SEED another one.
 */
// @module-tag slow
import { once } from 'node:events';
import { CmId } from '@node-roce/rdmacm';
import { expect, test } from 'vitest';
import { drawFrom } from '../../rdmacm/testing/draw.ts';
import { type Ends, equip, openEnds } from '../../rdmacm/testing/ends.ts';
import { connect, listen, type RSocket, type RsocketServer } from './index.ts';
import {
  type ConnectionData,
  decodeConnectionData,
  encodeConnectionData,
  encodeMapping,
  encodeTarget,
  Op,
} from './wire.ts';

const MESSAGES = Number(process.env.ROCE_RSOCKET_MESSAGES ?? 2000);
const SEED = Number(process.env.ROCE_RSOCKET_SEED ?? 1);
const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200, ioMappings: 2 };
/** A leak of one object of each connection passes these soon. */
const LIMITS = { maxQp: 8, maxPd: 6, maxCq: 6, maxMr: 16 };
const UNDER_WAY = 8;
/** Errors that a socket may have because of its peer. */
const CODES = ['ERR_ROCE_PROTOCOL', 'ERR_ROCE_CLOSED', 'ERR_ROCE_COMPLETION', 'ERR_ROCE_QP_FAILED'];

/** A WRITE of the peer. */
interface Message {
  imm: number | undefined;
  bytes: Uint8Array;
  addr: bigint;
  rkey: number;
}

/** A message as the protocol has it, with one part changed now and then. */
function messageOf(draw: (below: number) => number, { sgl, buffer }: ConnectionData): Message {
  const entry = {
    addr: BigInt(draw(2 ** 32)) * BigInt(draw(2 ** 32)),
    key: draw(2 ** 32),
    length: draw(2 ** 32),
  };
  const target = new Uint8Array(16);
  encodeTarget(new DataView(target.buffer), 0, entry, true);
  const place = draw(2);
  const [op, data, bytes, addr]: [number, number, Uint8Array, bigint] = [
    () => [Op.DATA, 0, new Uint8Array(draw(40)), buffer.addr + BigInt(draw(400))] as const,
    () => [Op.SGL, draw(20), target, sgl.addr + BigInt(16 * place)] as const,
    () => [Op.SGL, draw(20), new Uint8Array(0), 0n] as const,
    () => {
      const mapping = encodeMapping({ ...entry, offset: BigInt(draw(100)) }, true);
      return [Op.IOMAP, place, mapping, sgl.addr + 32n + BigInt(24 * place)] as const;
    },
    // Few, because they end a direction.
    () => [draw(20) === 0 ? Op.CTRL : 1 + draw(3), draw(4), new Uint8Array(0), 0n] as const,
  ][draw(5)]() as [number, number, Uint8Array, bigint];
  const length = op === Op.DATA ? bytes.length : data;
  const message = {
    imm: (op * 2 ** 29 + length) >>> 0,
    bytes,
    addr,
    rkey: op === Op.DATA ? buffer.key : sgl.key,
  };
  const change = draw(60);
  if (change < 6) message.imm = (message.imm ^ (1 << draw(29))) >>> 0;
  if (change === 6) message.imm = draw(2 ** 32);
  if (change === 7) return { ...message, imm: undefined };
  if (change === 8) message.rkey = (message.rkey ^ (1 << draw(32))) >>> 0;
  if (change === 9) message.addr = BigInt.asUintN(64, message.addr + BigInt(draw(2000) - 1000));
  return message;
}

/** The program of the socket: it reads, writes, and uses memory of the peer. */
function use(socket: RSocket, draw: (below: number) => number): void {
  const ignore = () => {};
  socket.on('data', () => {
    if (draw(4) === 0) socket.write(Buffer.alloc(draw(200)));
  });
  socket.write(Buffer.alloc(draw(600)));
  if (draw(3) === 0) socket.iowrite(new Uint8Array(draw(50)), draw(100)).catch(ignore);
  if (draw(3) === 0) socket.iomap(new Uint8Array(50), { offset: draw(100) }).catch(ignore);
  if (draw(10) === 0) socket.pause();
}

/** One connection, until it has ended; returns how many messages it took, and the socket's error. */
async function play(ends: Ends, server: RsocketServer, draw: (below: number) => number) {
  const id = new CmId({ device: ends.a });
  await id.resolveAddr({ host: '10.0.0.2', port: server.port });
  await id.resolveRoute();
  const { pd, cq, qp, mr } = await equip(id as never, { cap: { maxRecvWr: 20 } });
  let isOver = false;
  const receive = () => {
    if (!isOver) qp.receive([]).then(receive, () => {});
  };
  for (let i = 0; i < 16; i++) receive();
  const own = { addr: mr.addr, key: mr.rkey, length: 1 + draw(2) };
  const buffer = { addr: mr.addr + 1024n, key: mr.rkey, length: draw(3000) };
  const mappings = draw(3);
  const privateData = encodeConnectionData({
    isBigEndian: false,
    credits: draw(12),
    sgl: own,
    buffer,
    mappings,
    announcesEnds: draw(2) === 0,
  });
  if (draw(4) === 0) privateData[1] ^= 1;
  await id.connect({ privateData, responderResources: 0, initiatorDepth: 0 });
  const socket = await server.accept();
  let error: unknown;
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', (cause) => {
    error = cause;
  });
  use(socket, draw);
  const theirs = decodeConnectionData(id.replyData!)!;
  const pending = new Set<Promise<unknown>>();
  let sent = 0;
  for (const most = 1 + draw(200); sent < most && !isOver; sent++) {
    const { imm, bytes, addr, rkey } = messageOf(draw, theirs);
    const offset = 3072 + 64 * (sent % UNDER_WAY);
    mr.bytes(offset, bytes.length).set(bytes);
    const list = bytes.length === 0 ? [] : [{ mr, offset, length: bytes.length }];
    const sending = qp.write(list, { addr, rkey }, imm === undefined ? {} : { immData: imm }).catch(() => {
      isOver = true;
    });
    pending.add(sending);
    void sending.then(() => pending.delete(sending));
    if (pending.size >= UNDER_WAY) await Promise.race(pending);
  }
  isOver = true;
  await id.destroy();
  socket.resume();
  await closed;
  await mr.deregister();
  await cq.destroy();
  await pd.dealloc();
  return { sent, error };
}

test(`${MESSAGES} messages, some of them changed, end sockets or do nothing`, async () => {
  await using ends = await openEnds(1024, 1024, { limits: LIMITS });
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  const draw = drawFrom(SEED);
  const seen = new Map<string, number>();
  for (let sent = 0; sent < MESSAGES; ) {
    const played = await play(ends, server, draw);
    sent += played.sent;
    const code = (played.error as { code?: string } | undefined)?.code ?? `${played.error}`;
    seen.set(code, (seen.get(code) ?? 0) + 1);
    if (played.error !== undefined && !CODES.includes(code)) throw played.error;
  }
  console.log(`seed ${SEED}: sockets by their errors`, Object.fromEntries(seen));
  expect(seen.get('ERR_ROCE_PROTOCOL')).toBeGreaterThan(0);
  // The listener serves on.
  const client = await connect({ device: ends.a, host: '10.0.0.2', port: 7, ...SMALL });
  const socket = await server.accept();
  client.end('still here');
  expect(`${(await once(socket, 'data'))[0]}`).toBe('still here');
  client.resume();
  await Promise.all([client, socket].map((each) => (each.closed ? undefined : once(each, 'close'))));
});
