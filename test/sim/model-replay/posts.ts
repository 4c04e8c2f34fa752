/** The requests that the programs of a capture posted, from their command lines or from their packets. */
import type { ModelSendRequest } from '@node-roce/sim';
import { opcodeInfo, psnDiff } from '@node-roce/wire';
import type { Sidecar } from './sidecar.ts';
import type { TracePacket } from './trace.ts';

/**
 * Requests of programs that did not print them: the messages that the packets make up, in order of PSN.
 * The contents are so taken from the capture; what is compared is how they are cut, numbered and repeated.
 */
export function inferPosts(requests: TracePacket[]): { batch: boolean; posts: ModelSendRequest[] } {
  const first = requests[0].packet.psn;
  const byPsn = new Map(requests.map(({ packet }) => [psnDiff(packet.psn, first), packet]));
  const posts: ModelSendRequest[] = [];
  let payloads: Uint8Array[] = [];
  let remote: { va: bigint; rkey: number } | undefined;
  for (const [, packet] of [...byPsn].sort(([a], [b]) => a - b)) {
    const row = opcodeInfo(packet.opcode)!;
    const wrId = posts.length;
    if (packet.atomicEth !== undefined) {
      const { va, rkey, swapAdd } = packet.atomicEth;
      if (row.key !== 'RC_FETCH_ADD') throw new Error('no capture of another program holds a COMPARE SWAP');
      const local = new Uint8Array(8);
      posts.push({ wrId, opcode: 'ATOMIC_FETCH_AND_ADD', local, remote: { va, rkey }, compareAdd: swapAdd });
    } else if (row.isReadRequest) {
      const { va, rkey, length } = packet.reth!;
      posts.push({ wrId, opcode: 'RDMA_READ', local: new Uint8Array(length), remote: { va, rkey } });
    } else {
      payloads.push(packet.payload);
      if (packet.reth !== undefined) remote = { va: packet.reth.va, rkey: packet.reth.rkey };
      if (!row.last) continue;
      const local = Uint8Array.from(payloads.flatMap((payload) => [...payload]));
      const { solicited, immediate } = packet;
      const operation = row.isSend ? 'SEND' : 'RDMA_WRITE';
      posts.push({
        wrId,
        opcode: immediate === undefined ? operation : `${operation}_WITH_IMM`,
        local,
        solicited,
        ...(row.isSend ? {} : { remote }),
        ...(immediate === undefined ? {} : { immediate }),
      });
      payloads = [];
    }
  }
  return { batch: true, posts };
}

/** The requests of rxprobe's client by the words of its command line (the pattern of its buffer included). */
export function probePosts(sidecar: Sidecar): { batch: boolean; posts: ModelSendRequest[] } {
  const command = sidecar.command.A;
  const server = sidecar.probe.B!;
  const firstOp = command.findIndex((word) => /^\d+\.\d+\.\d+\.\d+$/.test(word)) + 1;
  const buffer = new Uint8Array(131_072 + 1024);
  for (let i = 0; i < buffer.length; i++) buffer[i] = i * 7 + (i >> 8);
  const posts: ModelSendRequest[] = [];
  command.slice(firstOp).forEach((word, wrId) => {
    if (word === 'batch') return;
    const [name, first = '0', second = '0'] = word.split(':');
    const badKey = name.startsWith('badkey-');
    const rkey = badKey ? server.rkey ^ 0x00ff_ff00 : server.rkey;
    posts.push(postOf(name.replace('badkey-', ''), Number(first), Number(second), wrId, rkey));
  });
  return { batch: command[firstOp] === 'batch', posts };

  function postOf(name: string, first: number, second: number, wrId: number, rkey: number): ModelSendRequest {
    const local = buffer.subarray(0, first);
    const remote = { va: server.address + BigInt(second), rkey };
    const immediate = 0xc0ffee00 + firstOp + wrId;
    switch (name) {
      case 'send':
      case 'sendinl':
        return { wrId, opcode: 'SEND', local };
      case 'sendse':
        return { wrId, opcode: 'SEND', local, solicited: true };
      case 'sendimm':
        return { wrId, opcode: 'SEND_WITH_IMM', local, immediate };
      case 'sendinv':
        return { wrId, opcode: 'SEND_WITH_INV', local, invalidateRkey: server.windowKey };
      case 'write':
        return { wrId, opcode: 'RDMA_WRITE', local, remote };
      case 'mwwrite':
        return { wrId, opcode: 'RDMA_WRITE', local, remote: { ...remote, rkey: server.windowKey } };
      case 'writeimm':
        return { wrId, opcode: 'RDMA_WRITE_WITH_IMM', local, remote, immediate };
      case 'read':
        return { wrId, opcode: 'RDMA_READ', local, remote };
    }
    const at = 131_072 + 8 * wrId;
    const answer = buffer.subarray(at, at + 8);
    const target = { va: server.address + BigInt(first), rkey };
    if (name === 'faa')
      return { wrId, opcode: 'ATOMIC_FETCH_AND_ADD', local: answer, remote: target, compareAdd: 5n };
    if (name === 'cas') {
      const swap = 0x1122334455667788n;
      return { wrId, opcode: 'ATOMIC_CMP_AND_SWP', local: answer, remote: target, compareAdd: 5n, swap };
    }
    throw new Error(`rxprobe has no operation ${name}`);
  }
}
