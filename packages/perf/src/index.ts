export type { BandwidthFigures } from './dialogue/fields.ts';
export { CLIENT_VERSIONS, type ClientVersion } from './dialogue/versions.ts';
export { type LocalOptions, localPerf } from './local.ts';
export {
  type CallOptions,
  callPerf,
  PERF_PORT,
  type ServeOptions,
  type SideOptions,
  servePerf,
} from './perf.ts';
export {
  type AtomicType,
  type Measure,
  type PerfOptions,
  type Plan,
  type PlayOptions,
  planOf,
  type Service,
  type Verb,
} from './plan.ts';
export { outJson } from './report/json-file.ts';
export type { Bucket, LatencyFigures } from './report/latency.ts';
export type { BandwidthResult, LatencyResult, MeasuredBy, PerfResult } from './report/result.ts';
export { measuredText, table } from './report/table.ts';
export type { PerfProgress } from './session.ts';
