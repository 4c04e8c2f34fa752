/** Link types and drop counts of the interfaces of all sections; a file may have many sections, each with many interfaces. */
import { linkTypeName, type SectionInfo } from '@node-roce/pcap';
import type { CaptureSummary } from './summary.ts';

/** Adds up sections that have ended: the counters of an interface come after its packets, as a rule. */
export class InterfaceCounts {
  #format: CaptureSummary['format'] | undefined;
  readonly #linkTypes = new Set<number>();
  /** Undefined until an interface has a counter. */
  #dropped: number | undefined;

  /** Takes a section after its last packet. */
  add(section: SectionInfo): void {
    this.#format ??= section.format;
    for (const { linkType, statistics } of section.interfaces) {
      this.#linkTypes.add(linkType);
      const { dropped, osDropped } = statistics ?? {};
      if (dropped !== undefined || osDropped !== undefined)
        this.#dropped = (this.#dropped ?? 0) + (dropped ?? 0) + (osDropped ?? 0);
    }
  }

  /** Returns the sums, with those of the sections that are being read. */
  until(current: Iterable<SectionInfo>): {
    format: CaptureSummary['format'];
    linkTypes: string[];
    dropped: number | undefined;
  } {
    const all = new InterfaceCounts();
    all.#format = this.#format;
    all.#dropped = this.#dropped;
    for (const linkType of this.#linkTypes) all.#linkTypes.add(linkType);
    for (const section of current) all.add(section);
    return {
      format: all.#format ?? 'unknown',
      linkTypes: [...new Set([...all.#linkTypes].map(linkTypeName))],
      dropped: all.#dropped,
    };
  }
}
