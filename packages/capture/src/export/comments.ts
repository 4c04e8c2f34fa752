/** Comments for the packets of a capture: what Wireshark then shows beside its own dissection. */
import type { Finding } from '../flow/analysis.ts';
import { FlowAnalyzer, type PacketVerdict } from '../flow/analyzer.ts';
import { IcrcVerdict, type RocePacket } from '../read/packet.ts';

/** Comments on retransmitted packets, by cause. */
const CAUSES: Readonly<Record<NonNullable<PacketVerdict['retransmission']>, string>> = {
  timeout: 'sent again: nothing came back in time',
  'sequence-nak': 'sent again: a NAK asked for it',
  'implied-nak': 'sent again: a response showed that one before it was lost',
  rnr: 'sent again: the receiver was not ready',
  probe: 'sent again before the timer was over',
  unknown: 'sent again; the capture does not show why',
};

/**
 * The findings at the frames behind them (of a super-packet, at its first packet), and at each packet what is to be
 * said of it alone. Of an analysis of the same capture, whose packets it is then shown once more.
 */
export class Commentator {
  readonly #findings = new Map<number, string[]>();
  readonly #analyzer: FlowAnalyzer;
  #verdict: PacketVerdict | undefined;

  constructor(findings: readonly Finding[]) {
    for (const { severity, text, hint, frames } of findings) {
      for (const frame of frames) {
        const texts = this.#findings.get(frame) ?? [];
        texts.push(`${severity}: ${text}. ${hint}`);
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
    const { retransmission, repeatedFrame } = this.#verdict!;
    const comments: string[] = [];
    if (retransmission !== undefined) comments.push(CAUSES[retransmission]);
    if (repeatedFrame) comments.push('the same packet once more, not sent again');
    if (packet.icrc === IcrcVerdict.BAD) comments.push('ICRC wrong');
    if (packet.part === 0) comments.push(...(this.#findings.get(packet.frame) ?? []));
    return comments;
  }
}
