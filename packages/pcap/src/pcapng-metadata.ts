/** The values of options of section headers, interface descriptions and interface statistics. */
import { DEFAULT_TSRESOL, OptionCode } from './pcapng-format.ts';
import { type BlockOption, optionText } from './pcapng-options.ts';
import type { InterfaceInfo, InterfaceStatistics, SectionInfo } from './record.ts';
import { type TimestampScale, unitsPerSecond } from './timestamp.ts';

/** An option whose length its type does not allow, and the length it must have, in bytes. */
export interface BadOption {
  readonly badOption: BlockOption;
  readonly expected: number;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** draft-ietf-opsawg-pcapng §4.1 */
export function readSection(
  bytes: Uint8Array,
  options: readonly BlockOption[],
): Pick<SectionInfo, 'hardware' | 'os' | 'application' | 'comments'> {
  const comments: string[] = [];
  const section: Mutable<ReturnType<typeof readSection>> = { comments };
  for (const option of options) {
    switch (option.code) {
      case OptionCode.COMMENT:
        comments.push(optionText(bytes, option));
        break;
      case OptionCode.SHB_HARDWARE:
        section.hardware = optionText(bytes, option);
        break;
      case OptionCode.SHB_OS:
        section.os = optionText(bytes, option);
        break;
      case OptionCode.SHB_APPLICATION:
        section.application = optionText(bytes, option);
        break;
    }
  }
  return section;
}

/** draft-ietf-opsawg-pcapng §4.2 */
export function readInterface(
  bytes: Uint8Array,
  view: DataView,
  options: readonly BlockOption[],
  littleEndian: boolean,
): Omit<InterfaceInfo, 'id' | 'linkType' | 'snapLength'> | BadOption {
  const comments: string[] = [];
  const described: Mutable<Omit<InterfaceInfo, 'id' | 'linkType' | 'snapLength'>> = {
    timestampUnitsPerSecond: unitsPerSecond(DEFAULT_TSRESOL),
    timestampOffset: 0n,
    comments,
  };
  for (const option of options) {
    const expected = interfaceOptionLengths.get(option.code);
    if (expected !== undefined && option.length !== expected) return { badOption: option, expected };
    switch (option.code) {
      case OptionCode.COMMENT:
        comments.push(optionText(bytes, option));
        break;
      case OptionCode.IF_NAME:
        described.name = optionText(bytes, option);
        break;
      case OptionCode.IF_DESCRIPTION:
        described.description = optionText(bytes, option);
        break;
      case OptionCode.IF_SPEED:
        described.speed = view.getBigUint64(option.start, littleEndian);
        break;
      case OptionCode.IF_TSRESOL:
        described.timestampUnitsPerSecond = unitsPerSecond(view.getUint8(option.start));
        break;
      case OptionCode.IF_FILTER:
        // The first byte is the kind; 0 is text, others (BPF instructions) are not shown.
        if (option.length > 0 && view.getUint8(option.start) === 0) {
          described.filter = optionText(bytes, {
            code: option.code,
            start: option.start + 1,
            length: option.length - 1,
          });
        }
        break;
      case OptionCode.IF_OS:
        described.os = optionText(bytes, option);
        break;
      case OptionCode.IF_FCSLEN:
        described.fcsLength = view.getUint8(option.start);
        break;
      case OptionCode.IF_TSOFFSET:
        described.timestampOffset = view.getBigInt64(option.start, littleEndian);
        break;
      case OptionCode.IF_HARDWARE:
        described.hardware = optionText(bytes, option);
        break;
    }
  }
  return described;
}

const interfaceOptionLengths = new Map<number, number>([
  [OptionCode.IF_SPEED, 8],
  [OptionCode.IF_TSRESOL, 1],
  [OptionCode.IF_FCSLEN, 1],
  [OptionCode.IF_TSOFFSET, 8],
]);

/**
 * draft-ietf-opsawg-pcapng §4.6
 *
 * @param timestampAt index in `view` of the block's timestamp
 */
export function readStatistics(
  view: DataView,
  timestampAt: number,
  options: readonly BlockOption[],
  scale: TimestampScale,
  littleEndian: boolean,
): InterfaceStatistics | BadOption {
  const time = (at: number): bigint =>
    scale.toNanoseconds(view.getUint32(at, littleEndian), view.getUint32(at + 4, littleEndian));
  const statistics: Mutable<InterfaceStatistics> = { timestamp: time(timestampAt) };
  for (const option of options) {
    const isTime = option.code === OptionCode.ISB_STARTTIME || option.code === OptionCode.ISB_ENDTIME;
    const counter = statisticsCounters.get(option.code);
    if (!isTime && counter === undefined) continue;
    if (option.length !== 8) return { badOption: option, expected: 8 };
    if (counter !== undefined) statistics[counter] = Number(view.getBigUint64(option.start, littleEndian));
    else if (option.code === OptionCode.ISB_STARTTIME) statistics.startTime = time(option.start);
    else statistics.endTime = time(option.start);
  }
  return statistics;
}

/** The counters of an Interface Statistics Block by option code; all are 64 bits. */
export const statisticsCounters = new Map<
  number,
  'received' | 'dropped' | 'filterAccepted' | 'osDropped' | 'delivered'
>([
  [OptionCode.ISB_IFRECV, 'received'],
  [OptionCode.ISB_IFDROP, 'dropped'],
  [OptionCode.ISB_FILTERACCEPT, 'filterAccepted'],
  [OptionCode.ISB_OSDROP, 'osDropped'],
  [OptionCode.ISB_USRDELIV, 'delivered'],
]);
