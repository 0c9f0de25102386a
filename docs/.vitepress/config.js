// The documentation as a site: `make site`. Pages are the same files that are read in the repository.
import { existsSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { slug } from 'github-slugger'

const docs = resolve(import.meta.dirname, '..')
const repository = 'https://github.com/kubexm/kubexm/blob/main/'

// Links to files outside of docs lead to the repository.
function outside(md) {
  const open = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options))
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    const to = tokens[i].attrGet('href')
    const [path, mark] = to.split('#')
    if (path && !/^[a-z]+:/.test(path)) {
      const file = resolve(dirname(join(docs, env.relativePath)), decodeURIComponent(path))
      if (relative(docs, file).startsWith('..') || !file.endsWith('.md')) {
        if (!existsSync(file)) throw new Error(`${env.relativePath}: dead link ${to}`)
        tokens[i].attrSet('href', repository + relative(join(docs, '..'), file) + (mark ? '#' + mark : ''))
      }
    }
    return open(tokens, i, options, env, self)
  }
}

// What is in the margin, in both languages.
const margin = [
  [['Using kubexm', '使用'], {
    tutorial: ['Tutorial', '教程'],
    'high-availability': ['High availability', '高可用'],
    hosts: ['Machines', '机器'],
    upgrade: ['Upgrade', '升级'],
    runtimes: ['Container runtimes', '容器运行时'],
    networks: ['Networks', '网络'],
    dns: ['DNS', 'DNS'],
    storage: ['Volumes', '卷'],
    addons: ['Addons', '附加组件'],
    certificates: ['Certificates', '证书'],
    backup: ['Backups', '备份'],
    offline: ['Offline', '离线安装'],
    security: ['Security', '安全'],
    'coming-from': ['Coming from another tool', '从其他工具转来'],
  }],
  [['Looking things up', '查阅'], {
    troubleshooting: ['Troubleshooting', '故障排查'],
    'exit-codes': ['Exit codes', '退出码'],
    faq: ['FAQ', '常见问题'],
    glossary: ['Glossary', '术语表'],
    architecture: ['Architecture', '架构'],
  }],
]

// On top: pages in English only.
const top = { '/config/reference': ['Reference', '参考'], '/cli/kubexm': ['Commands', '命令'], '/support-matrix': ['Support matrix', '支持矩阵'] }

const items = (pages, n, base) => Object.entries(pages).map(([page, words]) => ({ text: words[n], link: base + page }))

// locale is the site in the language that is the n-th of all words above.
const locale = (n, label, lang, base) => ({
  label,
  lang,
  themeConfig: { nav: items(top, n, ''), sidebar: margin.map(([title, pages]) => ({ text: title[n], items: items(pages, n, base) })) },
})

export default {
  title: 'kubexm',
  description: 'Kubernetes on Linux machines that you reach over SSH',
  rewrites: { 'README.md': 'index.md', 'zh/README.md': 'zh/index.md', 'adr/README.md': 'adr/index.md' },
  srcExclude: ['node_modules/**'],
  ignoreDeadLinks: false,
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  markdown: { html: false, anchor: { slugify: (s) => slug(s) }, config: (md) => md.use(outside) },
  themeConfig: {
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: 'https://github.com/kubexm/kubexm' }],
    outline: 'deep',
  },
  locales: { root: locale(0, 'English', 'en', '/'), zh: locale(1, '简体中文', 'zh-CN', '/zh/') },
}
