/** Peers whose packets are written by hand, for what no peer of ours would do. */
import type { MemoryLink, MemoryNetwork } from '@node-roce/link';
import type { TxBatch } from '@node-roce/transport';
import {
  AETH_BYTES,
  BTH_ACK_REQ,
  BTH_BYTES,
  BthFlags,
  bthOpcode,
  bthPsn,
  encodeReth,
  NakCode,
  Opcode,
  RETH_BYTES,
  writeBth,
} from '@node-roce/wire';
import type { Channel } from '../src/channel/channel.ts';
import { callTcp, TcpListener } from '../src/channel/tcp.ts';
import { Dialogue } from '../src/dialogue/dialogue.ts';
import type { Key } from '../src/dialogue/keys.ts';

const MTU = 1024;
const patience = { timeout: 120, signal: new AbortController().signal };

/** One end of a test of one queue pair: its link, its dialogue, and the address of the other end. */
class HandMade {
  readonly link: MemoryLink;
  readonly dialogue: Dialogue;
  readonly #network: MemoryNetwork;
  #theirs!: Key;

  constructor(network: MemoryNetwork, address: string, channel: Channel) {
    this.#network = network;
    this.link = network.link(address, MTU);
    this.dialogue = new Dialogue(channel, { version: '6.24', rdmaCm: false, gigabits: false });
  }

  /** The dialogue up to where a run may begin. */
  async begin(): Promise<Key> {
    await this.dialogue.begin(MTU);
    const { gid } = this.link.gids[0];
    [this.#theirs] = await this.dialogue.keys([
      { lid: 0, outReads: 1, qpn: 77, psn: 0, rkey: 0, vaddr: 0n, gid },
    ]);
    await this.dialogue.barrier();
    await this.dialogue.barrier();
    return this.#theirs;
  }

  send(opcode: number, psn: number, extension: Uint8Array): void {
    const bytes = new Uint8Array(BTH_BYTES + extension.length);
    writeBth(bytes, 0, opcode, BthFlags.MIG_REQ, 0xffff, this.#theirs.qpn, psn | BTH_ACK_REQ);
    bytes.set(extension, BTH_BYTES);
    const way = { source: this.link.gids[0].gid, trafficClass: 0, sourcePort: 1, hopLimit: 64 };
    this.#network.deliver({ bytes, ...way }, this.#theirs.gid);
  }
}

/** An RNR NAK of 0.64 ms, as perftest sets it, and behind it a NAK 0x60 for the same PSN. */
const REFUSALS = [0x2c, NakCode.PSN_SEQUENCE_ERROR].map((syndrome) => {
  const aeth = new Uint8Array(AETH_BYTES);
  aeth[0] = syndrome;
  return aeth;
});

/** A server that posts no receives, and answers each SEND as rxe does. It ends when its client leaves. */
export async function refuseSends(
  network: MemoryNetwork,
  address: string,
  onListening: (port: number) => void,
): Promise<void> {
  const listener = await TcpListener.open(0, '127.0.0.1', patience.signal);
  onListening(listener.port);
  const channel = await listener.accept(patience);
  listener.close();
  const server = new HandMade(network, address, channel);
  server.link.arrive = ({ bytes }) => {
    if (bthOpcode(bytes, 0) !== Opcode.RC_SEND_ONLY) return;
    for (const aeth of REFUSALS) server.send(Opcode.RC_ACKNOWLEDGE, bthPsn(bytes, 0), aeth);
  };
  await server.begin();
  await server.dialogue.barrier();
  await channel.untilEnded(120_000);
  await channel.destroy();
}

/** A client that asks for all of a `read bw` by one request, as network cards do. */
export async function readAtOnce(
  network: MemoryNetwork,
  address: string,
  port: number,
  size: number,
): Promise<void> {
  const channel = await callTcp('127.0.0.1', port, patience);
  const client = new HandMade(network, address, channel);
  const done = new Promise<void>((resolve) => {
    client.link.arrive = ({ bytes }) => {
      if (bthOpcode(bytes, 0) === Opcode.RC_RDMA_READ_RESPONSE_LAST) resolve();
    };
  });
  const { vaddr, rkey } = await client.begin();
  const reth = new Uint8Array(RETH_BYTES);
  encodeReth(reth, 0, { va: vaddr, rkey, length: size });
  client.send(Opcode.RC_RDMA_READ_REQUEST, 0, reth);
  await done;
  await client.dialogue.barrier();
  await client.dialogue.reports({ size, iterations: 1, peak: 0, average: 1, messageRate: 1 });
  await client.dialogue.barrier();
  await channel.destroy();
}

/** ms after each few packets, in which a slowed link has no room for more. */
const PAUSE = 16;
const BETWEEN_PAUSES = 32;

/** Makes a link slow: two packets a ms. */
export function slowed(link: MemoryLink): MemoryLink {
  const send = link.send.bind(link);
  const watch = link.watch.bind(link);
  let hasRoom = true;
  let wake = () => {};
  const reopen = () => {
    hasRoom = true;
    wake();
  };
  return Object.assign(link, {
    watch: (onWake: () => void) => {
      wake = onWake;
      watch(onWake);
    },
    send: (batch: TxBatch, from: number) => {
      if (!hasRoom || from === batch.count) return from;
      hasRoom = false;
      setTimeout(reopen, PAUSE);
      const { count } = batch;
      batch.count = Math.min(count, from + BETWEEN_PAUSES);
      const taken = send(batch, from);
      batch.count = count;
      return taken;
    },
  });
}
