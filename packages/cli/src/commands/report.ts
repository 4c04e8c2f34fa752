/** `roce report`: a capture as one HTML file. */
import { analyzeCapture, counted, renderReport } from '@node-roce/capture';
import { checkOutput, writeOutput } from '../drawing.ts';
import { exitCode, type ReadingChoices, readingOptions, sourceOf } from '../reading.ts';
import type { Terminal } from '../terminal.ts';
import { programName } from '../version.ts';

interface Options extends ReadingChoices {
  output: string;
  title?: string;
  json: boolean;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  checkOutput(file!, options.output, options.json);
  const analysis = await analyzeCapture(sourceOf(file!, terminal), {
    ...(await readingOptions(terminal, options)),
  });
  const { summary, findings, connections } = analysis;
  const html = renderReport(analysis, { title: options.title, generator: programName() });
  const facts = {
    findings: findings.length,
    connections: connections.length,
    rocePackets: summary.rocePackets,
    damage: summary.damage ?? null,
  };
  const said = `${counted(findings.length, 'finding')}, ${counted(connections.length, 'connection')}`;
  await writeOutput(html, options, { facts, summary: said }, terminal);
  return exitCode(summary, file!, terminal);
}
