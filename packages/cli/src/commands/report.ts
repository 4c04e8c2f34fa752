/** `roce report`: a capture as one HTML file. */
import { analyzeCapture, counted, renderReport } from '@node-roce/capture/node';
import { checkOutput, writeOutput } from '../drawing.ts';
import { exitCode, pathsOf, type ReadingChoices, readingOptions, sourcesOf } from '../reading.ts';
import { checkSpan, connectionFilter, type Selection, selected } from '../selection.ts';
import type { Terminal } from '../terminal.ts';
import { programName } from '../version.ts';

interface Options extends ReadingChoices, Selection {
  output: string;
  title?: string;
  json: boolean;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  for (const file of pathsOf(files)) checkOutput(file, options.output, options.json);
  checkSpan(options);
  if (options.filter !== undefined) connectionFilter(options.filter);
  const whole = await analyzeCapture(sourcesOf(files, terminal), {
    ...(await readingOptions(terminal, options)),
  });
  const analysis = selected(whole, options);
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
  return exitCode(summary, files, terminal);
}
