/** The `roce` command in the process of the test. */
import { Readable } from 'node:stream';
import { run } from '../src/cli.ts';

export interface RoceResult {
  code: number;
  out: string;
  err: string;
}

interface Given {
  env?: Record<string, string>;
  /** Standard input. */
  input?: Uint8Array | undefined;
  isTTY?: boolean | undefined;
  columns?: number | undefined;
}

export async function runRoce(
  args: readonly string[],
  { env = {}, input, isTTY, columns }: Given = {},
): Promise<RoceResult> {
  let out = '';
  let err = '';
  const code = await run(args, {
    stdin: Readable.from(input === undefined ? [] : [input]),
    stdout: {
      write(text, done) {
        out += text;
        done?.();
      },
      isTTY,
      columns,
    },
    stderr: { write: (text) => (err += text), isTTY, columns },
    env,
    signal: new AbortController().signal,
  });
  return { code, out, err };
}
