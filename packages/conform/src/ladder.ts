/** The packets of a case as text: a line each, with the PSNs counted from the first of its side. */
import { decodeCm, type Packet, psnDiff } from '@node-roce/wire';
import type { Case } from './case.ts';
import type { Entry } from './line.ts';
import { nameOfPacket, relative, syndromeText } from './names.ts';
import type { Session } from './session.ts';

const ARROWS = { tester: 'tester ──▶       ', device: '       ◀── device' } as const;

/** Of a long case the first lines and the last. */
const MOST_LINES = 200;

export function ladderOf({ entries, sessions }: Pick<Case, 'entries' | 'sessions'>): string {
  const start = entries[0]?.time ?? 0;
  const line = (entry: Entry): string => {
    const head = `${(entry.time - start).toFixed(3).padStart(10)} ms  ${ARROWS[entry.from]}`;
    return `${head}  ${textOf(entry, sessions)}`;
  };
  if (entries.length <= MOST_LINES) return entries.map(line).join('\n');
  const half = MOST_LINES / 2;
  const left = `… ${entries.length - MOST_LINES} packets left out …`;
  return [...entries.slice(0, half).map(line), left, ...entries.slice(-half).map(line)].join('\n');
}

function textOf({ packet, from, reason, frame }: Entry, sessions: readonly Session[]): string {
  if (packet === undefined) return `${frame.length} bytes that are no packet: ${reason}`;
  const { bth, payload, icrcStatus } = packet;
  const cm = cmText(packet);
  if (cm !== undefined) return cm;
  return [
    `${nameOfPacket(packet)} ${psnText(packet, from, sessions)}`,
    ...extensionTexts(packet),
    ...(payload.length > 0 ? [`${payload.length} B`] : []),
    ...(bth.ackReq ? ['AckReq'] : []),
    ...(icrcStatus === 'bad' ? ['BAD ICRC'] : []),
    ...(bth.pkey === 0xffff ? [] : [`P_Key 0x${bth.pkey.toString(16)}`]),
    ...(bth.tver === 0 ? [] : [`TVer ${bth.tver}`]),
  ].join(', ');
}

function psnText({ bth, info }: Packet, from: Entry['from'], sessions: readonly Session[]): string {
  const session = sessions.find(({ qpn, spec }) => bth.destQp === (from === 'tester' ? qpn : spec.qpn));
  if (session === undefined) return `QPN 0x${bth.destQp.toString(16)} psn 0x${bth.psn.toString(16)}`;
  const own = info.isRequest === (from === 'tester') ? session.spec.psn : session.devicePsn;
  return relative(psnDiff(bth.psn, own));
}

function extensionTexts({ extensions: { aeth, reth, atomicEth, atomicAckEth, deth } }: Packet): string[] {
  return [
    ...(aeth ? [`${syndromeText(aeth.syndrome)}, MSN ${aeth.msn}`] : []),
    ...(reth ? [`${reth.length} B at 0x${reth.va.toString(16)} key 0x${reth.rkey.toString(16)}`] : []),
    ...(atomicEth ? [`at 0x${atomicEth.va.toString(16)}`] : []),
    ...(atomicAckEth ? [`was ${atomicAckEth.original}`] : []),
    ...(deth ? [`Q_Key 0x${deth.qkey.toString(16)} from QPN 0x${deth.srcQp.toString(16)}`] : []),
  ];
}

const MAD_BYTES = 256;

function cmText({ info, bth, payload }: Packet): string | undefined {
  if (info.key !== 'UD_SEND_ONLY' || bth.destQp !== 1 || payload.length !== MAD_BYTES) return undefined;
  const decoded = decodeCm(payload);
  if (!decoded.ok) return undefined;
  const { message } = decoded;
  return `${message.name}${'reason' in message ? ` reason ${message.reason}` : ''}`;
}
