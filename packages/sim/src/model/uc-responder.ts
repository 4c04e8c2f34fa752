/**
 * The responder of an unreliable connection (IBTA vol 1 §9.8.2.2): nothing is answered. A message of which a packet is
 * missing, or with which anything is wrong, is dropped in silence up to the next FIRST or ONLY; the
 * connection lives on (§9.9.3: fault classes D, D1 and E).
 */
import { type OpcodeInfo, psnAdd, Transport } from '@node-roce/wire/rules';
import { bytesAt, type ModelMemory } from './memory.ts';
import { isOfPartition, type ModelPacket, rowOf } from './packet.ts';
import { checkLength, checkRemoteAccess, takesReceive } from './rc-responder-checks.ts';
import { receiveCompletion } from './rc-responder-execute.ts';
import { type ConnectedConfig, type ConnectedResponder, flushReceives } from './rc-responder-state.ts';
import { createReceiveQueue, takeReceive } from './receive-queue.ts';
import { abandonReceive, failOnReceive, type Received } from './unreliable-receive.ts';
import { ModelAccess } from './verbs.ts';

export interface UcResponder extends ConnectedResponder {
  /** The message that comes is not complete any more: wait for the next. */
  dropping: boolean;
}

export function createUcResponder(
  config: ConnectedConfig,
  memory: ModelMemory,
  firstPsn: number,
  receives = createReceiveQueue(),
): UcResponder {
  return {
    config,
    memory,
    state: 'READY',
    ePsn: firstPsn,
    inProgress: undefined,
    receives,
    dropping: false,
  };
}

/** Takes one packet, as it came from the wire, ICRC and address already found right. */
export function receiveUc(r: UcResponder, packet: ModelPacket): Received {
  const row = rowOf(packet);
  const ignored = checkUcHeader(r, packet, row);
  if (ignored !== undefined) return { completions: [], dropped: ignored };
  const abandoned = checkUcSequence(r, packet, row);
  const rest = continueMessage(r, packet, row);
  return { ...rest, completions: [...abandoned, ...rest.completions] };
}

/** §9.6.1, §10.3.1: another service, another P_Key, or the error state: as if the packet had not come. */
function checkUcHeader(r: UcResponder, packet: ModelPacket, row: OpcodeInfo): string | undefined {
  if (row.transport !== Transport.UC) return 'another transport service';
  if (!isOfPartition(packet)) return 'P_Key mismatch';
  return r.state === 'ERR' ? 'error state' : undefined;
}

/**
 * §9.8.2.2.1, §9.8.2.2.2: a packet goes on with the message in progress if it has the expected PSN and the right
 * opcode; a FIRST or ONLY begins a message whatever its PSN is. Either way a message that cannot be
 * completed any more is given up: its receive is used for the next (class D1), one of an SRQ completes in error (class E).
 */
function checkUcSequence(r: UcResponder, packet: ModelPacket, row: OpcodeInfo): Received['completions'] {
  if (!row.first && goesOn(r, packet, row)) return [];
  r.dropping = !row.first;
  return abandonMessage(r);
}

function goesOn(r: UcResponder, packet: ModelPacket, row: OpcodeInfo): boolean {
  if (r.inProgress === undefined || packet.psn !== r.ePsn) return false;
  return r.inProgress.kind === (row.isSend ? 'SEND' : 'WRITE');
}

function abandonMessage(r: UcResponder): Received['completions'] {
  const receive = r.inProgress?.receive;
  r.inProgress = undefined;
  return receive === undefined ? [] : abandonReceive(r.receives, receive);
}

function continueMessage(r: UcResponder, packet: ModelPacket, row: OpcodeInfo): Received {
  if (r.dropping) return { completions: [], dropped: 'waits for a FIRST or ONLY' };
  if (row.isWrite && !(r.config.accessFlags & ModelAccess.REMOTE_WRITE)) {
    return dropMessage(r, 'the queue pair allows no WRITE');
  }
  const receive = row.isSend && !row.first ? r.inProgress?.receive : r.receives.waiting[0];
  // §9.8.2.2.4: no RNR NAK here: a message that finds no receive is lost.
  if (takesReceive(row) && receive === undefined) return dropMessage(r, 'no receive is posted');
  if (takesReceive(row) && row.isSend && receive?.broken) {
    r.state = 'ERR';
    return { completions: [...failOnReceive(r.receives, receive), ...flushReceives(r)] };
  }
  const length = checkLength(r, packet, row);
  // Found at the first packet, the receive is not in use yet and stays where it is, in an SRQ too (class D).
  if (length?.is === 'fault') return dropMessage(r, length.reason);
  const access = checkRemoteAccess(r, packet, row);
  if (access?.is === 'fault') return dropMessage(r, access.reason);
  return executeUc(r, packet, row);
}

/** Classes D and E: this message is over, the next begins with a FIRST or ONLY. */
function dropMessage(r: UcResponder, dropped: string): Received {
  r.dropping = true;
  return { completions: abandonMessage(r), dropped };
}

/** §9.8.2.2: what a packet does that passed; the last of a SEND or of a WRITE with immediate completes a receive. */
function executeUc(r: UcResponder, packet: ModelPacket, row: OpcodeInfo): Received {
  const message = row.first
    ? {
        kind: row.isSend ? ('SEND' as const) : ('WRITE' as const),
        received: 0,
        announced: packet.reth?.length ?? 0,
        va: packet.reth?.va ?? 0n,
        rkey: packet.reth?.rkey ?? 0,
        receive: row.isSend ? takeReceive(r.receives) : undefined,
      }
    : r.inProgress!;
  const { length } = packet.payload;
  const target =
    message.receive?.local.subarray(message.received, message.received + length) ??
    bytesAt(r.memory, message.rkey, message.va + BigInt(message.received), length);
  target.set(packet.payload);
  message.received += length;
  r.ePsn = psnAdd(packet.psn, 1);
  r.inProgress = row.last ? undefined : message;
  if (!row.last || (row.isWrite && !row.hasImmediate)) return { completions: [] };
  const receive = message.receive ?? takeReceive(r.receives)!;
  const opcode = row.isSend ? 'RECV' : 'RECV_RDMA_WITH_IMM';
  return { completions: [receiveCompletion(receive, packet, opcode, message.received)] };
}
