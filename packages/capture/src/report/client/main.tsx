/** The report's page: reads the data that stand in the file and shows them. */
import 'uplot/dist/uPlot.min.css';
import './style/base.css';
import './style/overview.css';
import './style/tables.css';
import './style/connection.css';
import './style/ladder.css';
import './style/narrow.css';
import './style/paper.css';
import { render } from 'preact';
import type { ReportData } from '../data.ts';
import { App } from './app.tsx';
import { savedTheme, showTheme } from './theme.ts';

showTheme(savedTheme());
const data = JSON.parse(document.getElementById('data')!.textContent!) as ReportData;
const page = document.getElementById('page')!;
page.replaceChildren();
render(<App data={data} />, page);
