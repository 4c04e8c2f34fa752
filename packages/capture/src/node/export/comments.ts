/** Comments for the packets of a capture, which Wireshark shows with its own dissection. */
import type { Finding } from '../../flow/analysis.ts';
import { FlowAnalyzer } from '../../flow/analyzer.ts';
import type { PacketVerdict } from '../../flow/track/packet-tracker.ts';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';

/** Why a packet was retransmitted, by cause. */
const CAUSES: Readonly<Record<NonNullable<PacketVerdict['retransmission']>, string>> = {
  timeout: 'ACK timeout, unanswered since',
  'sequence-nak': 'sequence NAK in',
  'implied-nak': 'a response was missing, as shown by',
  rnr: 'RNR NAK in',
  probe: 'probe before the ACK timeout, unanswered since',
  unknown: '',
};

/** `retransmission: sequence NAK in frame 8 (certain)`. */
function retransmissionText({ retransmission, grade, evidence }: PacketVerdict): string {
  if (retransmission === undefined || grade === 'not-shown')
    return 'retransmission: the capture does not show the cause';
  const frame = evidence > 0 ? `frame ${evidence}` : 'a frame that was not captured';
  return `retransmission: ${CAUSES[retransmission]} ${frame} (${grade})`;
}

/**
 * Comments each frame that a finding cites (of a super-packet, its first packet), and each packet with its own verdict.
 * Takes an analysis of the same capture, and is then given the capture's packets a second time.
 */
export class Commentator {
  readonly #findings = new Map<number, string[]>();
  readonly #analyzer: FlowAnalyzer;
  #verdict: PacketVerdict | undefined;

  constructor(findings: readonly Finding[]) {
    for (const { severity, connection, statement, hint, frames } of findings.flatMap(
      ({ members, ...finding }) => members ?? [finding],
    )) {
      for (const frame of frames) {
        const texts = this.#findings.get(frame) ?? [];
        const where = connection === undefined ? '' : `connection ${connection}: `;
        texts.push(`${severity}: ${where}${statement}. ${hint}`);
        this.#findings.set(frame, texts);
      }
    }
    this.#analyzer = new FlowAnalyzer({
      onPacket: (_, verdict) => {
        this.#verdict = verdict;
      },
    });
  }

  /** To be called for each packet, in the order of the capture. */
  commentsOf(packet: RocePacket): string[] {
    this.#analyzer.add(packet);
    const verdict = this.#verdict!;
    const comments: string[] = [];
    if (verdict.retransmission !== undefined) comments.push(retransmissionText(verdict));
    if (verdict.repeatedFrame) comments.push('duplicate frame: the same packet, shown twice');
    if (packet.icrc === IcrcVerdict.BAD) comments.push('wrong ICRC');
    if (packet.part === 0) comments.push(...(this.#findings.get(packet.frame) ?? []));
    return comments;
  }
}
