/** The file of `--out_json`: names as perftest has them. */
import { fetches } from '../plan.ts';
import type { PerfResult } from './result.ts';
import { titleOf } from './table.ts';

/** One object for the last run, as perftest overwrites its file at each. */
export function outJson(result: PerfResult): object {
  const { plan, mtu, rdmaCm } = result;
  const info = {
    test: titleOf(plan).replaceAll(' ', '_'),
    Number_of_qps: plan.qps,
    Connection_type: plan.service,
    TX_depth: plan.txDepth,
    ...(plan.consumesReceives ? { RX_depth: plan.rxDepth } : {}),
    ...(plan.measure === 'bw' ? { CQ_Moderation: plan.cqMod } : {}),
    Mtu: mtu,
    Link_type: 'Ethernet',
    ...(fetches(plan) ? { Outstand_reads: plan.outReads } : { Max_inline_data: plan.inline }),
    rdma_cm_QPs: rdmaCm ? 'ON' : 'OFF',
  };
  return { test_info: info, results: lastRun(result) };
}

function lastRun(result: PerfResult): object {
  if (result.measure === 'bw') {
    const run = result.runs.at(-1)!;
    return {
      MsgSize: run.size,
      n_iterations: run.iterations,
      BW_peak: run.peak,
      BW_average: run.average,
      MsgRate: run.messageRate,
    };
  }
  const run = result.runs.at(-1);
  if (run === undefined) return {};
  const { size: MsgSize, iterations: n_iterations, average: t_avg } = run;
  if (run.rate !== undefined) return { MsgSize, n_iterations, t_avg, tps_average: run.rate };
  return {
    ...{ MsgSize, n_iterations },
    t_min: run.min,
    t_max: run.max,
    t_typical: run.typical,
    t_avg,
    t_stdev: run.deviation,
    percentile_99: run.percentiles?.['99'],
    'percentile_99.9': run.percentiles?.['99.9'],
  };
}
