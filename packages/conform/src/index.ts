/**
 * A conformance tester for RoCEv2 devices: rules of the transport, played packet by packet.
 *
 * - A device on a network: `open({ via, host })`.
 * - A device without a network: `adapterBench` for a `SimDevice` of `@node-roce/sim`, `endpointBench` for an `Endpoint`.
 * - To play: `run(rules('PSN'), bench)`, or `play` for one rule.
 * - A rule of one's own: `rule(id, { … }, async (t) => { … })`.
 */
export { captureOfCase } from './capture-file.ts';
export type { Bench, Case, ConnectionOptions, Waits } from './case.ts';
export type { CmNumbers, CmSession, Heard } from './cm-session.ts';
export {
  type Completion,
  type ConnectionSpec,
  type Device,
  type DeviceConnection,
  type DeviceInfo,
  type Post,
  type Receive,
  type Right,
  Untestable,
  type Window,
  type WindowSpec,
} from './device.ts';
export { bytes, same } from './device-side.ts';
export { resultsHtml } from './html.ts';
export { LISTS } from './known/lists.ts';
export {
  compare,
  isNews,
  type KnownDeviation,
  type KnownList,
  learn,
  parseKnownList,
  signature,
} from './known.ts';
export type { End, Entry, Line } from './line.ts';
export { isServedBy, type Link, lacksOf, NEEDS, type Need, type Via } from './needs.ts';
export { AGENT_SOURCE, Agent } from './network/agent.ts';
export { agentDevice } from './network/agent-device.ts';
export { PacketLine } from './network/packet-line.ts';
export { UdpLine } from './network/udp-line.ts';
export { type OpenBench, type OpenOptions, open } from './open.ts';
export { CASE_RULES, CaseJudge, judgeCases } from './passive/cases.ts';
export type { CaseConnection } from './passive/connection.ts';
export {
  type CaptureJudgement,
  type CaptureJudgeOptions,
  type HostResults,
  judgeCapture,
} from './passive/judge.ts';
export { PASSIVE_RULES } from './passive/rules.ts';
export {
  caseText,
  junit,
  type PlainResult,
  type PlainResults,
  parseResults,
  resultsJson,
  resultText,
  ruleText,
  totalsText,
} from './report.ts';
export { type NamedRule, type Rule, type RuleSpec, rule } from './rule.ts';
export { RULES, rules } from './rules/all.ts';
export { play, type Result, type RunOptions, run, type Verdict } from './run.ts';
export type { PacketOptions, ReplyOptions, Session } from './session.ts';
export {
  type AdapterBenchOptions,
  type AdapterOptions,
  adapterBench,
  endpointBench,
  MODEL_OPTIONS,
  modelBench,
} from './virtual/bench.ts';
export { type AcceptFrame, acceptFrame } from './virtual/line.ts';
