/**
 * The analysis of RoCE captures, without I/O and without Node: a browser can load it. Files, reports and exports are in
 * `@node-roce/capture/node`, which has all of this too.
 */
export type { ClockOffset, Comparison, Transit, TransitEvent, TransitFate } from './compare/comparison.ts';
export { connectionExpression, FILTER_FIELDS, packetExpression } from './filter/fields.ts';
export { FilterError } from './filter/language.ts';
export type {
  Analysis,
  CaptureSummary,
  Connection,
  Finding,
  Overview,
  Verdict,
  VerdictKind,
} from './flow/analysis.ts';
export { type AnalyzeOptions, analyzeRecords } from './flow/analyze.ts';
export { FlowAnalyzer, type FlowOptions, type MessageQps } from './flow/analyzer.ts';
export { FINDING_CSV_HEADER, findingCsv, MESSAGE_CSV_HEADER, messageCsv } from './flow/csv.ts';
export type * from './flow/facts.ts';
export { FINDING_KINDS, FINDING_TITLES, type FindingKind } from './flow/findings/index.ts';
export { overviewText } from './flow/overview.ts';
export type { CmConnection, CmEnd } from './flow/pair/cm.ts';
export type { CmEvent, CmExchange, CmOutcome, CmParty } from './flow/pair/cm-exchanges.ts';
export type { PauseEffect, PausePriority, PauseSender } from './flow/record/pauses.ts';
export type { EcnCounts, TrafficClass } from './flow/record/traffic-classes.ts';
export type { PacketFlow, PacketVerdict } from './flow/track/packet-tracker.ts';
export {
  causeNames,
  filterLadder,
  kindNames,
  kindOf,
  type LadderFilter,
  PACKET_KINDS,
  type PacketKind,
  packetLabel,
  packetNotes,
} from './ladder/kind.ts';
export { type LadderOptions, renderLadder } from './ladder/render.ts';
export { AddressTable, MAX_ADDRESSES } from './read/addresses.ts';
export { type ChecksumVerdict, ipChecksum, udpChecksum } from './read/checksums.ts';
export {
  addressPredicate,
  type ConnectionName,
  isNak,
  type PacketFilter,
  packetFilter,
} from './read/filter.ts';
export { IcmpError, type IcmpMeaning } from './read/icmp.ts';
export type { Crc32 } from './read/icrc-check.ts';
export { type NothingDecoded, nothingDecoded } from './read/nothing.ts';
export {
  type Addresses,
  destinationMac,
  IcrcVerdict,
  RocePacket,
  sourceMac,
  verdictName,
} from './read/packet.ts';
export { macText, PauseFrame } from './read/pause.ts';
export { isPlain, plainFrame, plainLinkType } from './read/plain-frame.ts';
export { type ReadOptions, type ReadProgress, type ReadResult, readRecords } from './read/read.ts';
export { PacketReader, type PacketReaderOptions, type RefusedFrame } from './read/reader.ts';
export type { Refusal } from './read/refusal.ts';
export { packetFrame } from './read/super-packet.ts';
export { type Tunnel, tunnelName } from './read/tunnel.ts';
export { clockText, comparisonText } from './report/comparison-page.ts';
export { DEFAULT_LIMITS, type ReportLimits } from './report/data.ts';
export {
  counted,
  formatBytes,
  formatCount,
  formatDuration,
  formatEndpoint,
  formatPsn,
  formatQp,
  formatRate,
  formatSeconds,
  formatShare,
  formatTime,
} from './units.ts';
