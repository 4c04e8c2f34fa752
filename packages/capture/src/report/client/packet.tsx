/** One packet: the verdict of the analysis, its fields, its bytes. */
import { fromHex, transportFields } from '@node-roce/wire';
import { useMemo, useState } from 'preact/hooks';
import type { LadderPacket } from '../../flow/analysis.ts';
import { packetNotes } from '../../ladder/kind.ts';
import { formatEndpoint, formatTime } from '../../units.ts';
import type { ReportConnection, ReportData } from '../data.ts';

interface Props {
  connection: ReportConnection;
  data: ReportData;
  /** Undefined where the report does not hold the frame. */
  packet: LadderPacket | undefined;
  frame: number;
  step: (by: number) => void;
  close: () => void;
}

export function PacketDetails({ connection, data, packet, frame, step, close }: Props) {
  return (
    <aside class="packet" aria-label="The chosen packet" aria-live="polite">
      <div class="packet-head">
        <h4>
          Frame {frame}
          {packet !== undefined && packet.part > 0 && `.${packet.part}`}
        </h4>
        <span class="buttons">
          <button type="button" aria-label="Packet before" title="Packet before" onClick={() => step(-1)}>
            ↑
          </button>
          <button type="button" aria-label="Packet after" title="Packet after" onClick={() => step(1)}>
            ↓
          </button>
          <button type="button" aria-label="Close the packet" title="Close" onClick={close}>
            ✕
          </button>
        </span>
      </div>
      {packet === undefined ? (
        <p class="faint">
          This report does not hold the bytes of that frame: it keeps the first packets of a connection, and
          those about its findings. The capture has it:{' '}
          <code>roce dump -x {data.summary.file ?? 'FILE'}</code>.
        </p>
      ) : (
        <Packet connection={connection} packet={packet} />
      )}
    </aside>
  );
}

function Packet({ connection, packet }: { connection: ReportConnection; packet: LadderPacket }) {
  const bytes = useMemo(() => fromHex(packet.bytes), [packet]);
  const fields = useMemo(() => transportFields(bytes), [bytes]);
  const [lit, setLit] = useState<number>();
  const [from, to] = packet.from === 'a' ? [connection.a, connection.b] : [connection.b, connection.a];
  const notes = packetNotes(packet);
  const field = lit === undefined ? undefined : fields[lit];
  return (
    <>
      <p class="strong">{packet.opcodeName}</p>
      <dl class="plain">
        <dt>Time</dt>
        <dd>{formatTime(packet.time)}</dd>
        <dt>From</dt>
        <dd>{formatEndpoint(from)}</dd>
        <dt>To</dt>
        <dd>{formatEndpoint(to)}</dd>
        <dt>Payload</dt>
        <dd>{packet.payloadLength} bytes</dd>
        {packet.message !== undefined && (
          <>
            <dt>Message</dt>
            <dd>{packet.message}</dd>
          </>
        )}
        <dt>ICRC</dt>
        <dd class={packet.icrc === 'bad' ? 'marked' : ''}>
          {packet.icrc === 'none' ? 'not checked' : packet.icrc}
        </dd>
        {notes.length > 0 && (
          <>
            <dt>Note</dt>
            <dd class="marked">{notes.join(', ')}</dd>
          </>
        )}
      </dl>
      <table class="fields">
        <caption class="hidden">Fields, with their offsets from the BTH on</caption>
        <thead>
          <tr>
            <th scope="col">At</th>
            <th scope="col">Field</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          {fields.map(({ layer, name, text, offset }, i) => (
            <tr
              key={`${layer}.${name}`}
              class={i === lit ? 'lit' : ''}
              onMouseEnter={() => setLit(i)}
              onMouseLeave={() => setLit(undefined)}
            >
              <td class="faint">{hex(offset, 2)}</td>
              <td>
                {layer}.{name}
              </td>
              <td>{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <HexDump bytes={bytes} from={field?.offset ?? -1} to={field ? field.offset + field.bytes.length : -1} />
      <p class="faint small">{bytes.length} bytes are kept, from the BTH on.</p>
    </>
  );
}

const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');

const BYTES_A_LINE = 16;

/** Sixteen bytes a line, those of a field lit. */
function HexDump({ bytes, from, to }: { bytes: Uint8Array; from: number; to: number }) {
  const lines = Array.from({ length: Math.ceil(bytes.length / BYTES_A_LINE) }, (_, i) => i * BYTES_A_LINE);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard.
    <section class="hex" tabIndex={0} aria-label="Bytes from the BTH on">
      <pre>
        {lines.map((start) => {
          const line = [...bytes.subarray(start, start + BYTES_A_LINE)];
          return (
            <div key={start}>
              <span class="faint">{hex(start, 4)}</span>{' '}
              {line.map((byte, i) => (
                <span key={start + i} class={start + i >= from && start + i < to ? 'lit' : ''}>
                  {' '}
                  {hex(byte, 2)}
                </span>
              ))}
            </div>
          );
        })}
      </pre>
    </section>
  );
}
