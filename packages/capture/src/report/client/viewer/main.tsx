/** The page that needs no installation: takes captures by drop or choice, has a worker analyze them, and shows the report. */
import 'uplot/dist/uPlot.min.css';
import '../style/base.css';
import '../style/overview.css';
import '../style/tables.css';
import '../style/connection.css';
import '../style/ladder.css';
import '../style/narrow.css';
import '../style/paper.css';
import '../style/viewer.css';
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes, formatCount } from '../../../units.ts';
import type { ReportData } from '../../data.ts';
import { App, type Reload } from '../app.tsx';
import { savedTheme, showTheme } from '../theme.ts';
import type { News, Order } from './messages.ts';

/** The worker's script, which stands in the page. */
const script = JSON.parse(document.getElementById('worker')!.textContent!) as string;

type State =
  | { type: 'waiting' }
  | { type: 'reading'; name: string; read: number; total: number; packets: number }
  | { type: 'failure'; text: string }
  | { type: 'report'; data: ReportData; files: readonly File[]; number: number };

function newWorker(): [worker: Worker, url: string] {
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  return [new Worker(url), url];
}

/** Reads packets of a connection from these files again, in a worker of its own. */
const again =
  (files: readonly File[]): Reload =>
  (connection, window) =>
    new Promise((resolve, reject) => {
      const [worker, url] = newWorker();
      const end = () => {
        worker.terminate();
        URL.revokeObjectURL(url);
      };
      worker.onerror = (event) => {
        end();
        reject(new Error(event.message));
      };
      worker.onmessage = ({ data: news }: MessageEvent<News>) => {
        if (news.type === 'progress') return;
        end();
        if (news.type === 'packets') resolve(news.packets);
        else reject(new Error(news.type));
      };
      worker.postMessage({ files, packets: { connection, window } } satisfies Order);
    });

function Viewer() {
  const [state, setState] = useState<State>({ type: 'waiting' });
  const [isOver, setOver] = useState(false);
  const worker = useRef<Worker | undefined>(undefined);
  const number = useRef(0);

  const stop = () => {
    worker.current?.terminate();
    worker.current = undefined;
  };
  const analyze = (files: readonly File[]) => {
    if (files.length === 0) return;
    stop();
    const name = files.length === 1 ? files[0].name : `${files.length} files`;
    setState({ type: 'reading', name, read: 0, total: 0, packets: 0 });
    const [started, url] = newWorker();
    worker.current = started;
    const end = (next: State) => {
      URL.revokeObjectURL(url);
      if (worker.current !== started) return;
      stop();
      setState(next);
    };
    started.onerror = (event) => {
      event.preventDefault();
      end({ type: 'failure', text: `The analysis of ${name} failed: ${event.message}` });
    };
    started.onmessage = ({ data: news }: MessageEvent<News>) => {
      if (news.type === 'failure') end(news);
      else if (news.type === 'report') end({ ...news, files, number: ++number.current });
      else if (news.type === 'progress' && worker.current === started)
        setState({ ...news, type: 'reading', name });
    };
    started.postMessage({ files });
  };

  useEffect(() => {
    const over = (event: DragEvent) => {
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      analyze([...(event.dataTransfer?.files ?? [])]);
    };
    addEventListener('dragover', over);
    addEventListener('dragleave', leave);
    addEventListener('drop', drop);
    return () => {
      removeEventListener('dragover', over);
      removeEventListener('dragleave', leave);
      removeEventListener('drop', drop);
    };
  }, []);
  useEffect(() => {
    document.title =
      state.type === 'report' ? `${state.data.summary.file} – RoCE report` : 'RoCE captures in the browser';
  }, [state]);

  const chooser = <Chooser choose={analyze} isSmall={state.type === 'report'} />;
  return (
    <div class={isOver ? 'over' : ''}>
      {state.type === 'report' ? (
        <>
          <div class="again">{chooser}</div>
          <App key={state.number} data={state.data} reload={again(state.files)} />
        </>
      ) : (
        <main class="viewer">
          <h1>RoCE capture report</h1>
          {state.type === 'reading' ? (
            <Progress
              state={state}
              stop={() => {
                stop();
                setState({ type: 'waiting' });
              }}
            />
          ) : (
            chooser
          )}
          {state.type === 'failure' && (
            <p class="failure" role="alert">
              {state.text}
            </p>
          )}
          <p class="faint">
            pcap and pcapng, plain, .gz or .zst; several files are one capture. The file is read in this
            browser: nothing is sent, and this page loads nothing.
          </p>
        </main>
      )}
    </div>
  );
}

function Chooser({ choose, isSmall }: { choose: (files: File[]) => void; isSmall: boolean }) {
  return (
    <label class={isSmall ? 'chooser small' : 'chooser'}>
      <span>{isSmall ? 'Open another capture' : 'Drop a capture here, or choose a file'}</span>
      <input
        type="file"
        multiple
        onChange={({ currentTarget }) => {
          choose([...(currentTarget.files ?? [])]);
          // So that the same file can be chosen again.
          currentTarget.value = '';
        }}
      />
    </label>
  );
}

function Progress({ state, stop }: { state: State & { type: 'reading' }; stop: () => void }) {
  const { name, read, total, packets } = state;
  return (
    <div class="progress" role="status">
      <p>
        Reading <b>{name}</b>
      </p>
      <progress max={Math.max(total, 1)} value={read} />
      <p class="faint">
        {formatBytes(read)} of {formatBytes(total)}, {formatCount(packets)} RoCE packets
      </p>
      <button type="button" onClick={stop}>
        Stop
      </button>
    </div>
  );
}

showTheme(savedTheme());
render(<Viewer />, document.getElementById('page')!);
